// The recommended settings of a new dataset: they are applied unless the user has chosen others, with the reason beside
// the button.

import { button, element } from './element.js';
import { labelOf, reveal } from './form_sections.js';

const SIZE = ['resize_width', 'resize_height', 'resize_mode'];

/**
 * Returns {names, isOpen, expect, apply, describe}: `names` are the fields with recommendations, `isOpen(name)` whether the
 * user has left one to them, `expect()` announces another source, `apply(advice)` takes the pieces of advice of a summary,
 * and `describe()` returns elements. A form that is sent before there is advice leaves the open fields to the server.
 */
export function recommendations(form) {
  const shares = ['valShare', 'testShare'].map((name) => document.getElementById('split-bar')?.dataset[name]).filter(Boolean);
  const groups = [SIZE, ...shares.map((name) => [name])];
  const names = groups.flat().filter((name) => form.elements[name]);
  const keepsAll = form.dataset.own !== undefined; // a clone, or a form that was sent
  const own = new Set(names.filter((name) => keepsAll || !isDefault(form.elements[name])));
  let latest = [];
  let isKnown = false;

  const groupOf = (name) => groups.find((group) => group.includes(name)) ?? [name];
  const isChosen = (fields) => fields.some((name) => own.has(name));
  const isOpen = (name) => names.includes(name) && !isChosen(groupOf(name));

  for (const type of ['input', 'change']) {
    form.addEventListener(
      type,
      ({ target }) => {
        if (!names.includes(target.name)) return;
        own.add(target.name);
        target.removeAttribute('data-suggested');
      },
      true,
    );
  }

  form.addEventListener('formdata', ({ formData }) => {
    const open = names.filter(isOpen);
    if (isKnown || !open.length) return;
    for (const name of open) formData.delete(name);
    formData.set('recommended', '1');
  });

  const expect = () => (isKnown = false);

  function apply(advice) {
    isKnown = advice.length > 0;
    latest = advice.filter(({ fields }) => Object.keys(fields).every((name) => names.includes(name)));
    const values = Object.assign({}, ...latest.map(({ fields }) => fields));
    for (const name of names.filter(isOpen)) {
      const control = form.elements[name];
      const value = values[name] ?? defaultOf(control);
      control.value = value;
      control.toggleAttribute('data-suggested', value !== defaultOf(control)); // the form's memory does not keep it
    }
  }

  function describe() {
    const items = latest.map((piece) => {
      const [first] = Object.keys(piece.fields);
      const control = form.elements[first];
      const differs = Object.entries(piece.fields).some(([name, value]) => form.elements[name].value !== value);
      const words = element('span', '', piece.reason, ' ');
      const act = differs ? button('text-button', 'Use this', () => choose(piece.fields)) : button('text-button', 'Change', () => change(control));
      if (!differs) act.setAttribute('aria-label', `Change: ${labelOf(control)}`);
      return element('li', '', words, act);
    });
    return items.length ? [element('ul', 'plain source-advice small', ...items)] : [];
  }

  function choose(fields) {
    for (const name of Object.keys(fields)) own.delete(name);
    for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
    form.elements[Object.keys(fields)[0]].dispatchEvent(new Event('input', { bubbles: true }));
    for (const name of Object.keys(fields)) own.delete(name);
    apply(latest);
  }

  function change(control) {
    reveal(control);
    control.scrollIntoView({ block: 'center' });
    control.focus();
  }

  return { names, isOpen, expect, apply, describe };
}

function defaultOf(control) {
  if (control.tagName !== 'SELECT') return control.defaultValue;
  return ([...control.options].find((option) => option.defaultSelected) ?? control.options[0]).value;
}

const isDefault = (control) => control.value === defaultOf(control);
