// The list of standard networks: search, descriptions, and applying recommended settings.

import { toast } from './dialog.js';
import { labelOf, reveal } from './form_sections.js';

const UNTICKED = ['', '0', 'false', 'no', 'off'];

/** Initializes the list in `form`. Returns {showFitting}, which hides networks that do not fit the dataset. */
export function startNetworkList(form, datasets) {
  const search = document.getElementById('network-search');
  search?.addEventListener('input', () => find(form, search.value));
  // Enter would submit the form.
  search?.addEventListener('keydown', (event) => event.key === 'Enter' && event.preventDefault());
  form.addEventListener('change', ({ target }) => target.name === 'standard_networks' && showAbout(form, target.value));
  form.addEventListener('click', ({ target }) => {
    const button = target.closest('[data-values]');
    if (button) say(fill(form, JSON.parse(button.dataset.values)));
  });
  // The browser may have restored a choice other than the server's.
  const chosen = form.querySelector('[name="standard_networks"]:checked');
  if (chosen) showAbout(form, chosen.value);
  const showFitting = () => {
    const kind = datasets.find(({ id }) => id === form.elements.dataset.value)?.data_kind;
    for (const card of cards(form)) card.dataset.fits = String(!kind || card.dataset.kinds.split(' ').includes(kind));
    find(form, search?.value ?? '');
    const radio = form.querySelector('[name="standard_networks"]:checked');
    if (radio && radio.closest('.choice').dataset.fits === 'true') return;
    const first = cards(form).find(({ dataset }) => dataset.fits === 'true')?.querySelector('input');
    if (!first) return;
    first.checked = true;
    showAbout(form, first.value);
  };
  showFitting();
  return { showFitting };
}

const cards = (form) => [...form.querySelectorAll('#networks .choice')];

/** Fills in fields from {name: value} as a user would. Returns the labels of those that changed. */
export function fill(form, values) {
  return Object.entries(values)
    .map(([name, value]) => [form.elements[name], value])
    .filter(([control, value]) => control && set(control, value))
    .map(([control]) => announce(control));
}

function set(control, value) {
  if (control.type === 'checkbox') {
    const before = control.checked;
    control.checked = !UNTICKED.includes(String(value ?? '').toLowerCase());
    return control.checked !== before;
  }
  const before = control.value;
  const wanted = [value ?? ''].flat().join(', ');
  control.value = wanted;
  if (control.value !== wanted) control.value = before; // The list does not have this choice.
  return control.value !== before;
}

function announce(control) {
  // Radio buttons with the same name are a list; events come from the checked one.
  const element = control instanceof RadioNodeList ? [...control].find(({ checked }) => checked) : control;
  for (const type of ['input', 'change']) element.dispatchEvent(new Event(type, { bubbles: true }));
  reveal(element);
  return labelOf(element);
}

function say(labels) {
  toast(labels.length ? `Settings applied: ${labels.join(', ')}.` : 'These settings are already applied.', 'success');
}

function find(form, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const card of cards(form)) {
    const about = card.textContent.toLowerCase();
    card.hidden = card.dataset.fits === 'false' || !words.every((word) => about.includes(word));
    found += !card.hidden;
  }
  const status = document.getElementById('network-found');
  if (status) status.textContent = words.length ? `${found} found` : '';
}

function showAbout(form, id) {
  for (const about of form.querySelectorAll('[data-about]')) about.hidden = about.dataset.about !== id;
}
