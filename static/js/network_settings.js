// Applies the settings of a standard network, lists the changes, and marks fields that the user edits afterwards.

import { describe, element, undescribe } from './element.js';
import { elementOf, fill, valueOf } from './fill_fields.js';
import { labelOf } from './form_sections.js';

/**
  * `box` contains a status line and an Undo button. Returns functions: `apply(title, values)` applies the
  * settings {name: value} of the network `title`; `expect` only marks fields that differ from them.
 */
export function startNetworkSettings(form, box, undone = () => {}) {
  const status = box.querySelector('[role="status"]');
  const undo = box.querySelector('button');
  let expected = null; // {title, values}
  let latest = null; // {before, after, expected}, for Undo
  let applying = false;

  function change(values) {
    applying = true;
    // Twice, because changing the solver sets its usual learning rate, which must not replace the one in `values`.
    for (let pass = 0; pass < 2; pass += 1) fill(form, values);
    applying = false;
  }

  function expect(title, values) {
    expected = { title, values };
    mark(form, expected);
  }

  function apply(title, values, { lead = `${title} sets`, otherwise = '' } = {}) {
    const before = state(form);
    change(values);
    const after = state(form);
    const changed = Object.keys({ ...values, ...after }).filter((name) => name in after && after[name] !== before[name]);
    latest = changed.length ? { before: pick(before, changed), after: pick(after, changed), expected } : null;
    const { standard_networks: chosen, ...settings } = values;
    expect(title, settings);
    const words = changed.filter((name) => name !== 'standard_networks' && isShown(form, name)).map((name) => inWords(form, name, after[name]));
    show(words.length ? `${lead}: ${words.join(', ')}.` : otherwise);
  }

  function show(words) {
    status.textContent = words;
    undo.hidden = !latest || !words;
  }

  undo.addEventListener('click', () => {
    const { before, after } = latest;
    const edited = Object.keys(after).filter((name) => valueOf(form.elements[name]) !== after[name]);
    for (const name of edited) delete before[name];
    const { expected: earlier } = latest;
    latest = null;
    change(before);
    expected = earlier;
    mark(form, expected);
    const kept = edited.filter((name) => isShown(form, name)).map((name) => label(form, name));
    show(kept.length ? `Earlier settings restored, except what you have edited since: ${kept.join(', ')}.` : 'Earlier settings restored.');
    undone();
    const radios = ['standard_networks', 'method'].map((name) => form.querySelector(`[name="${name}"]:checked`));
    radios.find((radio) => radio && !radio.closest('[hidden]'))?.focus();
  });

  const isEdited = () => !expected || edits(form, expected).length > 0;
  const isApplied = (name) => Boolean(expected && name in expected.values && !edits(form, expected).some(([edited]) => edited === name));
  for (const type of ['input', 'change']) form.addEventListener(type, () => applying || mark(form, expected));
  return { apply, expect, isApplying: () => applying, isApplied, isEdited };
}

const IGNORED = ['hidden', 'submit', 'button', 'file', 'textarea'];

/** Returns the values of all fields by name, except a suggested value, which depends on the others. */
function state(form) {
  const isField = ({ name, type, dataset }) => name && !IGNORED.includes(type) && dataset?.suggested === undefined;
  const names = new Set([...form.elements].filter(isField).map(({ name }) => name));
  return Object.fromEntries([...names].map((name) => [name, valueOf(form.elements[name])]));
}

const pick = (values, names) => Object.fromEntries(names.map((name) => [name, values[name]]));

const isShown = (form, name) => !elementOf(form.elements[name]).closest('[hidden]');

function label(form, name) {
  const words = labelOf(elementOf(form.elements[name]));
  // Abbreviations keep their capitals.
  return /^[A-Z]{2}/.test(words) ? words : words.charAt(0).toLowerCase() + words.slice(1);
}

/** Describes a setting, such as "batch size 128" or "flip none". */
function inWords(form, name, value) {
  const control = elementOf(form.elements[name]);
  const option = optionText(form.elements[name], value);
  const unit = control.closest('.input-unit')?.querySelector('.unit').textContent ?? '';
  const number = `${value.replace(/,\s*/g, ', ')}${unit && (unit === '%' ? unit : ` ${unit}`)}`;
  const text = option ?? (value === '' ? control.placeholder || 'none' : number);
  return `${label(form, name)} ${text}`;
}

/** Returns the text of an option of a list, or of a radio button. */
function optionText(control, value) {
  if (control instanceof RadioNodeList) return [...control].find((radio) => radio.value === value)?.parentElement.textContent.trim();
  if (control.type === 'checkbox') return value === 'true' ? 'on' : 'off';
  return [...(control.options ?? [])].find((option) => option.value === value)?.text;
}

/* Marks of edited fields ------------------------------------------------------------ */

/** Returns the expected settings [name, value] of fields with a different value. */
function edits(form, { values }) {
  return Object.entries(values).filter(([name, value]) => form.elements[name] && !isSame(valueOf(form.elements[name]), String(value)));
}

function mark(form, expected) {
  for (const note of form.querySelectorAll('.edited-note')) {
    undescribe(describedBy(note.parentElement), note.id);
    note.remove();
  }
  if (!expected) return;
  for (const [name, value] of edits(form, expected)) {
    const field = elementOf(form.elements[name]).closest('[data-field]');
    if (!field) continue;
    const words = inWords(form, name, String(value)).slice(label(form, name).length + 1);
    const note = element('span', { class: 'help edited-note', id: `${name}-edited` }, `Edited. ${expected.title}: ${words}`);
    field.append(note);
    describe(describedBy(field), note.id);
  }
}

/** Returns the element to describe: the whole group for radio buttons. */
const describedBy = (field) => (field.matches('fieldset') ? field : field.querySelector('input, select'));

function isSame(one, other) {
  const [first, second] = [one, other].map((text) => text.trim().replace(/,\s*/g, ', '));
  return first === second || (first !== '' && second !== '' && Number(first) === Number(second));
}
