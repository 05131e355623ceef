// Choosing a solver fills in its usual settings, unless the user has changed them.

import { fill } from './fill_fields.js';

/** `select` is the form's list of solvers; its data-usual contains {solver: {field: value}}. `isApplied(name)` returns whether the field has the network's value. */
export function startSolver(form, select, isApplied) {
  const usual = JSON.parse(select.dataset.usual);
  let before = select.value;
  select.addEventListener('change', () => {
    const untouched = ([name]) => Number(form.elements[name].value) === usual[before][name] || isApplied(name);
    fill(form, Object.fromEntries(Object.entries(usual[select.value]).filter(untouched)));
    before = select.value;
  });
}
