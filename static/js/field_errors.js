// Field errors from the server, shown as in pages that the server renders.

import { describe, element, notice, undescribe } from './element.js';
import { labelOf, reveal } from './form_sections.js';

/** Lists the errors above the form, as in pages rendered by the server, and shows each message at its field. */
export function showFormErrors(form, errors) {
  document.getElementById('form-errors')?.remove();
  const box = mistakes(form, errors);
  box.id = 'form-errors';
  box.tabIndex = -1;
  form.prepend(box);
  showFieldErrors(form, errors);
  box.focus();
}

/** A notice that lists {field: [messages]}, with links to the fields. */
function mistakes(form, errors) {
  const items = wordsOf(form, errors).map(({ label, text, id }) => element('li', '', id ? element('a', { href: `#${id}` }, label) : label, `: ${text}`));
  const box = notice('tone-danger', element('strong', '', 'Please fix these fields'), element('ul', 'plain', ...items));
  box.setAttribute('role', 'alert');
  return box;
}

/** Puts each message of {field: [messages]} at its field. */
function showFieldErrors(form, errors) {
  clearFieldErrors(form);
  const found = Object.entries(errors)
    .map(([name, messages]) => ({ name, messages: [messages].flat(), field: form.querySelector(`[data-field="${CSS.escape(name)}"]`) }))
    .filter(({ field }) => field);
  for (const { name, messages, field } of found) show(name, messages.join(' '), field);
}

/** Removes all messages. */
function clearFieldErrors(form) {
  for (const field of form.querySelectorAll('[data-field]:has(.error-text)')) clear(field);
}

/** Converts {field: [messages]} to [{label, text, id}], for a list with links; `id` is undefined for fields not in this form. */
function wordsOf(form, errors) {
  return Object.entries(errors).map(([name, messages]) => {
    const field = form.querySelector(`[data-field="${CSS.escape(name)}"]`);
    return { label: field ? labelOf(field) : name, text: [messages].flat().join(' '), id: field ? controlOf({ name, field }).id : undefined };
  });
}

function controlOf({ name, field }) {
  return field.querySelector('[aria-invalid="true"]') ?? field.querySelector(`[name="${CSS.escape(name)}"]`) ?? field.querySelector('input, select, textarea');
}

function show(name, text, field) {
  reveal(field);
  const message = element('span', { class: 'error-text', id: `${name}-error` }, text);
  field.append(message);
  const described = field.matches('fieldset') ? field : controlOf({ name, field });
  describe(described, message.id);
  if (described !== field) described.setAttribute('aria-invalid', 'true');
  // A field that is being edited may be valid now.
  field.addEventListener('input', () => clear(field), { once: true });
}

function clear(field) {
  const message = field.querySelector('.error-text');
  if (!message) return;
  message.remove();
  for (const described of [field, ...field.querySelectorAll('[aria-describedby]')]) {
    undescribe(described, message.id);
    described.removeAttribute('aria-invalid');
  }
}
