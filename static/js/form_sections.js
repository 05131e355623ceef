// Collapsed sections of a form, whose summaries list the settings that differ from the defaults.

import { elementOf } from './fill_fields.js';

/** Updates the summaries of all `details` with data-defaults. */
export function startSections(form) {
  for (const section of form.querySelectorAll('[data-defaults]')) {
    const defaults = JSON.parse(section.dataset.defaults);
    const words = section.querySelector('[data-set]');
    const show = () => (words.textContent = changed(form, defaults).join(', '));
    section.addEventListener('input', show);
    section.addEventListener('change', show);
    show();
  }
}

/** Opens all sections around `control`, so that it can be focused. */
export function reveal(control) {
  for (let section = control.closest('details'); section; section = section.parentElement.closest('details')) section.open = true;
}

/** The label of the field around `control`. */
export function labelOf(control) {
  const label = control.closest('[data-field]')?.querySelector('.label, legend, .check > span');
  return label ? label.firstChild.textContent.trim() : control.name;
}

function changed(form, defaults) {
  return Object.entries(defaults)
    .filter(([name]) => form.elements[name])
    .map(([name, usual]) => [elementOf(form.elements[name]), usual])
    .filter(([control, usual]) => isShown(control) && !isUsual(control, usual))
    .map(([control]) => labelOf(control));
}

/** Whether a field is used: fields in a closed section are, but not those of another optimizer or schedule. */
export function isShown(control) {
  return !control.matches(':disabled') && !control.closest('[hidden]');
}

function isUsual(control, usual) {
  if (control.type === 'checkbox') return control.checked === Boolean(usual);
  const given = control.value.trim();
  return given === String(usual ?? '') || given === '' || (typeof usual === 'number' && Number(given) === usual);
}
