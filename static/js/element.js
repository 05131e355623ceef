// Creates the elements that scripts add to a page.

/**
 * Creates an element with `children`: elements and texts. `about` is its class, or an object with its attributes; names
 * that start with two dashes are properties for its style.
 */
export function element(tag, about = '', ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(typeof about === 'string' ? { class: about } : about)) {
    if (name.startsWith('--')) made.style.setProperty(name, value);
    else if (value !== '') made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== ''));
  return made;
}

/** Creates the nodes of `text`, markup from the server. */
export function markup(text) {
  const template = element('template');
  template.innerHTML = text;
  return template.content;
}

/** Creates a button that calls `act`. */
export function button(className, words, act) {
  const made = element('button', { type: 'button', class: className }, words);
  made.addEventListener('click', act);
  return made;
}

/** Creates a notice. The last of its `children` may be texts. */
export function notice(tone, ...children) {
  return element('div', `notice ${tone}`, element('div', 'notice-body', ...children));
}

/** Creates a table of `rows` under the titles in `head`, texts or th elements. */
export function table(className, head, rows, caption = '') {
  const titles = head.map((title) => (typeof title === 'string' ? element('th', { scope: 'col' }, title) : title));
  return element('table', className, caption, element('thead', '', element('tr', '', ...titles)), element('tbody', '', ...rows));
}

/** Creates a region called `label` that can be scrolled with the keyboard. */
export function scrolling(className, label, child) {
  return element('div', { class: className, role: 'region', 'aria-label': label, tabindex: 0 }, child);
}
