// Collapsed sections of a form, whose summaries list the settings that differ from the defaults.

/** Updates the summaries of all `details` with data-defaults; returns a function that does so again. */
export function startSections(form) {
  const show = () => {
    for (const section of form.querySelectorAll('[data-defaults]')) {
      section.querySelector('[data-set]').textContent = changed(form, JSON.parse(section.dataset.defaults)).join(', ');
    }
  };
  for (const type of ['input', 'change']) form.addEventListener(type, show);
  show();
  return show;
}

/** Returns the element that the user operates: for a group of radio buttons, the checked one. */
const elementOf = (control) => (control instanceof RadioNodeList ? ([...control].find(({ checked }) => checked) ?? control[0]) : control);

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
