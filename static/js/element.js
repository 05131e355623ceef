// Creates the elements that scripts add to a page.

export function notice(tone, text) {
  const box = element('div', `notice ${tone}`);
  box.append(element('div', 'notice-body', text));
  return box;
}

export function element(tag, name = '', text = '') {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
