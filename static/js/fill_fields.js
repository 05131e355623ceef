// Fills in the fields of a form by name, as a user would.

const UNTICKED = ['', '0', 'false', 'no', 'off'];

/** Fills in fields from {name: value}. Values that a list does not offer are ignored. */
export function fill(form, values) {
  for (const [name, value] of Object.entries(values)) {
    const control = form.elements[name];
    if (control && set(control, value)) announce(control);
  }
}

/** Returns the value of a field as text. A group of radio buttons is one field. */
export const valueOf = (control) => (control.type === 'checkbox' ? String(control.checked) : control.value);

/** Returns the element that the user operates: for a group of radio buttons, the checked one. */
export const elementOf = (control) => (control instanceof RadioNodeList ? ([...control].find(({ checked }) => checked) ?? control[0]) : control);

function set(control, value) {
  const before = valueOf(control);
  const wanted = [value ?? ''].flat().join(', ');
  if (control.type === 'checkbox') control.checked = !UNTICKED.includes(wanted.toLowerCase());
  else {
    control.value = wanted;
    if (control.value !== wanted) control.value = before; // The list does not offer this value.
  }
  return valueOf(control) !== before;
}

function announce(control) {
  for (const type of ['input', 'change']) elementOf(control).dispatchEvent(new Event(type, { bubbles: true }));
}
