// Marks fields that differ from the recommended settings.

import { describe, element, undescribe } from './element.js';
import { elementOf, valueOf } from './fill_fields.js';
import { isShown, labelOf } from './form_sections.js';

/** Returns the names of the fields whose values differ from `settings` {name: value}. Hidden fields do not count. */
export function edits(form, settings) {
  return Object.entries(settings)
    .filter(([name, value]) => isUsed(form.elements[name]) && !isSame(valueOf(form.elements[name]), String(value)))
    .map(([name]) => name);
}

/** Marks the fields that differ from `settings`; without any, removes all marks. */
export function markEdits(form, settings) {
  for (const note of form.querySelectorAll('.edited-note')) {
    undescribe(describedBy(note.parentElement), note.id);
    note.remove();
  }
  for (const name of settings ? edits(form, settings) : []) {
    const field = elementOf(form.elements[name]).closest('[data-field]');
    if (!field) continue;
    const note = element('span', { class: 'help edited-note', id: `${name}-edited` }, `Recommended: ${inWords(form.elements[name], String(settings[name]))}`);
    field.append(note);
    describe(describedBy(field), note.id);
  }
}

/** Returns the labels of fields, such as “batch size”; abbreviations keep their capitals. */
export function labelsOf(form, names) {
  const labels = names.map((name) => labelOf(elementOf(form.elements[name])));
  return labels.map((words) => (/^[A-Z]{2}/.test(words) ? words : words.charAt(0).toLowerCase() + words.slice(1)));
}

const isUsed = (control) => control && isShown(elementOf(control));

/** Returns the element to describe: the whole group for radio buttons. */
const describedBy = (field) => (field.matches('fieldset') ? field : field.querySelector('input, select'));

function isSame(one, other) {
  const [first, second] = [one, other].map((text) => text.trim().replace(/,\s*/g, ', '));
  return first === second || (first !== '' && second !== '' && Number(first) === Number(second));
}

/** Describes a value, such as “128”, “33%” or “none”. */
function inWords(control, value) {
  if (control instanceof RadioNodeList) return [...control].find((radio) => radio.value === value)?.parentElement.textContent.trim() ?? value;
  if (control.type === 'checkbox') return value === 'true' ? 'on' : 'off';
  const option = [...(control.options ?? [])].find((item) => item.value === value)?.text;
  const unit = control.closest('.input-unit')?.querySelector('.unit').textContent ?? '';
  return option ?? (value === '' ? control.placeholder || 'none' : `${value.replace(/,\s*/g, ', ')}${unit && (unit === '%' ? unit : ` ${unit}`)}`);
}
