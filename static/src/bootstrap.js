// Only the parts that the pages use; each works by data attributes once it is imported.
export { default as Collapse } from 'bootstrap/js/src/collapse.js';
export { default as Dropdown } from 'bootstrap/js/src/dropdown.js';
export { default as Modal } from 'bootstrap/js/src/modal.js';
export { default as Tab } from 'bootstrap/js/src/tab.js';
