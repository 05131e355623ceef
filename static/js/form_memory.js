// Keeps what is being filled in: for a reload and the browser's back button in the tab's storage, and what took
// work (code that was never sent) as a draft that outlives the tab.

import { ago } from './format.js';
import { forget, store, stored } from './storage.js';

const SAVE_MILLISECONDS = 300;
const CHOICES = ['checkbox', 'radio'];
const NOT_KEPT = ['hidden', 'submit', 'button', 'file', 'password'];

const KEPT_MILLISECONDS = 12 * 3600 * 1000;

const dropDraft = () => forget('localStorage', (key) => key === draftKey());
const draftKey = () => `draft ${document.querySelector('.user-name')?.textContent ?? ''} ${location.pathname}`;

/**
 * Puts back what the form had when its page was reloaded, or left and come back to. Call it before anything reads
 * the form. `unsaved()` says whether the form holds work that would be lost; then leaving the page asks first.
 * Answers {sent}, to be called when the server has taken the form.
 */
export function startFormMemory(form, unsaved = () => false) {
  // The browser's own memory restores some fields, later, and without an event.
  form.autocomplete = 'off';
  const viewKey = keyOfThisView();
  const kept = stored('sessionStorage', viewKey);
  if (kept) restore(form, kept);
  const id = kept?.id ?? viewKey;
  let timer = 0;
  let stopped = false;

  function save() {
    clearTimeout(timer);
    if (stopped) return;
    const state = { id, at: Date.now(), ...stateOf(form) };
    store('sessionStorage', viewKey, state);
    if (unsaved()) store('localStorage', draftKey(), state);
    else if (stored('localStorage', draftKey())?.id === id) dropDraft();
  }

  function changed() {
    clearTimeout(timer);
    timer = setTimeout(save, SAVE_MILLISECONDS);
    // Only while there is something to lose: a page that asks is not kept whole by browsers.
    window[unsaved() ? 'addEventListener' : 'removeEventListener']('beforeunload', ask);
  }

  for (const type of ['input', 'change', 'toggle']) form.addEventListener(type, changed, true);
  window.addEventListener('pagehide', save);
  if (unsaved()) changed();

  const draft = stored('localStorage', draftKey());
  if (draft && draft.id !== id) {
    offer(form, draft, () => {
      stopped = true;
      store('sessionStorage', viewKey, draft);
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

/** A key that stays with this entry of the tab's history: a new visit of the same address has another. */
function keyOfThisView() {
  const key = history.state?.form ?? `form ${Date.now()} ${Math.random()}`;
  history.replaceState({ ...history.state, form: key }, '');
  // The oldest ones are forgotten: their keys are times.
  const oldest = Date.now() - KEPT_MILLISECONDS;
  forget('sessionStorage', (name) => name.startsWith('form ') && name !== key && Number(name.split(' ')[1]) < oldest);
  return key;
}

/* The state: {values: {name: [values]}, texts: {name: what the text was before it was changed}, open: [details]} */

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
    // Where a choice is no longer offered, what the server drew stays.
    if (control.type === 'checkbox') control.checked = list.includes(control.value);
    else if (control.type === 'radio') {
      if (!list.length || offers(control.name, list[0])) control.checked = control.value === list[0];
    } else if (control.type !== 'select-one' || [...control.options].some(({ value }) => value === list[0])) {
      if (control.type === 'textarea') control.defaultValue = texts[control.name] ?? control.defaultValue;
      control.value = list[0] ?? '';
    }
  }
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
