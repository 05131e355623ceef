// Preserves the contents of forms: in the tab's storage for reloads and the back button, and unsent code as a
// draft that outlives the tab.

import { settled } from './settled.js';
import { ago } from './format.js';
import { forget, store, stored } from './storage.js';

const SAVE_MILLISECONDS = 300;
const CHOICES = ['checkbox', 'radio'];
const NOT_KEPT = ['hidden', 'submit', 'button', 'file', 'password'];

const KEPT_MILLISECONDS = 12 * 3600 * 1000;

const dropDraft = () => forget('localStorage', (key) => key === draftKey());
const draftKey = () => `draft ${document.querySelector('.user-name')?.textContent ?? ''} ${location.pathname}`;

/**
 * Restores the form after a reload of its page or a return to it. Call it before anything reads
 * the form. If `unsaved()` is true, leaving the page asks for confirmation.
 * Returns {sent}, to be called once the server has accepted the form.
 */
export function startFormMemory(form, unsaved = () => false) {
  // The browser's own form restoration runs later, is incomplete, and fires no event.
  form.autocomplete = 'off';
  const viewKey = keyOfThisView();
  const kept = stored('sessionStorage', viewKey);
  const rendered = JSON.stringify(stateOf(form).values);
  if (kept) restore(form, kept);
  const isRestored = JSON.stringify(stateOf(form).values) !== rendered;
  const id = kept?.id ?? viewKey;
  let stopped = false;

  function save() {
    if (stopped) return;
    const state = { id, at: Date.now(), search: location.search, ...stateOf(form) };
    store('sessionStorage', viewKey, state);
    if (unsaved()) store('localStorage', draftKey(), state);
    else if (stored('localStorage', draftKey())?.id === id) dropDraft();
  }

  const saveSoon = settled(save, SAVE_MILLISECONDS);

  function changed() {
    saveSoon();
    // Only while there is unsaved work: browsers do not cache pages with this listener.
    window[unsaved() ? 'addEventListener' : 'removeEventListener']('beforeunload', ask);
  }

  for (const type of ['input', 'change', 'toggle']) form.addEventListener(type, changed, true);
  window.addEventListener('pagehide', save);
  if (unsaved()) changed();

  if (isRestored) {
    offerToStartOver(form, kept, () => {
      stopped = true;
      forget('sessionStorage', (key) => key === viewKey);
      location.reload();
    });
  }

  const draft = stored('localStorage', draftKey());
  if (draft && draft.id !== id) {
    offer(form, draft, () => {
      stopped = true;
      store('sessionStorage', viewKey, draft);
      // The address names choices that are not among the newest ones.
      history.replaceState(history.state, '', location.pathname + (draft.search ?? ''));
      location.reload();
    });
  }

  return {
    sent() {
      for (const text of form.querySelectorAll('textarea')) text.defaultValue = text.value;
      window.removeEventListener('beforeunload', ask);
      save();
    },
  };
}

const ask = (event) => event.preventDefault();

/** A key for this entry of the tab's history; a new visit to the same address has a different one. */
function keyOfThisView() {
  const key = history.state?.form ?? `form ${Date.now()} ${Math.random()}`;
  history.replaceState({ ...history.state, form: key }, '');
  // Remove expired entries; their keys contain the time.
  const oldest = Date.now() - KEPT_MILLISECONDS;
  forget('sessionStorage', (name) => name.startsWith('form ') && name !== key && Number(name.split(' ')[1]) < oldest);
  return key;
}

/* The state: {values: {name: [values]}, texts: {name: the original text}, open: [details]} */

function controlsOf(form) {
  return [...form.elements].filter(({ name, type, dataset }) => name && !NOT_KEPT.includes(type) && dataset.suggested === undefined);
}

function stateOf(form) {
  const values = {};
  const texts = {};
  for (const control of controlsOf(form)) {
    const list = (values[control.name] ??= []);
    if (!CHOICES.includes(control.type) || control.checked) list.push(control.value);
    if (control.type === 'textarea') texts[control.name] = control.defaultValue;
  }
  return { values, texts, open: sectionsOf(form).map((section) => section.open) };
}

const sectionsOf = (form) => [...form.querySelectorAll('details')];

function restore(form, { values = {}, texts = {}, open = [] }) {
  sectionsOf(form).forEach((section, place) => (section.open ||= Boolean(open[place])));
  const controls = controlsOf(form);
  const offers = (name, value) => controls.some((control) => control.name === name && control.value === value);
  for (const control of controls) {
    const list = values[control.name];
    if (!list) continue;
    // If a choice no longer exists, keep the one rendered by the server.
    if (control.type === 'checkbox') control.checked = list.includes(control.value);
    else if (control.type === 'radio') {
      if (!list.length || offers(control.name, list[0])) control.checked = control.value === list[0];
    } else if (control.type !== 'select-one' || [...control.options].some(({ value }) => value === list[0])) {
      if (control.type === 'textarea') control.defaultValue = texts[control.name] ?? control.defaultValue;
      control.value = list[0] ?? '';
    }
  }
}

/** States in a form with data-restored that it was restored. */
function offerToStartOver(form, { at }, startOver) {
  const box = form.querySelector('[data-restored]');
  if (!box) return;
  box.querySelector('[data-restored-words]').textContent = `Restored what you entered ${ago(at / 1000)}.`;
  box.hidden = false;
  box.querySelector('[data-restored-drop]').addEventListener('click', startOver);
}

/* The draft ------------------------------------------------------------ */

function offer(form, draft, take) {
  const box = form.querySelector('[data-draft]');
  if (!box) return;
  const [name] = Object.entries(draft.values ?? {}).find(([field]) => field.endsWith('_name') && field !== 'group_name')?.[1] ?? [];
  box.querySelector('[data-draft-words]').textContent = `${name ? `“${name}”, last` : 'Last'} changed ${ago(draft.at / 1000)}.`;
  box.hidden = false;
  box.querySelector('[data-draft-take]').addEventListener('click', take);
  box.querySelector('[data-draft-drop]').addEventListener('click', () => {
    dropDraft();
    box.hidden = true;
    form.querySelector('select, input:not([type="hidden"])').focus();
  });
}
