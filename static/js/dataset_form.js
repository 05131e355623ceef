// The form of a new dataset, which the server fills in (answered_form.js) from what this script reads of the source.

import { startAnsweredForm } from './answered_form.js';
import { startCreatingJob } from './create_job.js';
import { startFormMemory } from './form_memory.js';
import { reveal } from './reveal.js';
import { request } from './http.js';
import { settled } from './settled.js';
import { startUploadFields } from './upload_field.js';

const WAIT_MILLISECONDS = 300;

const form = document.getElementById('dataset-form');
const region = document.getElementById('source-summary') ?? document.createElement('div');
const findings = document.getElementById('source-findings');
const submit = form.querySelector('[type="submit"]');
const files = [...form.querySelectorAll('input[type="file"][name]')];
const isStopped = () => submit.hasAttribute('aria-disabled');

const memory = startFormMemory(form);
const fields = startAnsweredForm(form, {
  ignored: files.map(({ name }) => name),
  answered: settled(read, WAIT_MILLISECONDS),
  problem: (words) => (document.getElementById('create-status').textContent = words),
});
const job = startCreatingJob(form, { memory, refused });

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (isStopped()) return load();
  job.busy('Reading the source…');
  await load();
  let awaited = null; // what was being read, which a change of the form replaces
  while (awaited !== reading) {
    await (awaited = reading);
    await fields.ready();
  }
  job.free();
  if (!isStopped()) await job.send();
});

/** Shows the errors of the fields, each until the field is changed. */
async function refused(errors) {
  form.elements.refused.value = JSON.stringify(errors);
  await fields.ask();
  form.querySelectorAll('[data-field] .error-text').forEach(reveal);
  document.getElementById('form-errors')?.focus();
}

form.addEventListener('input', ({ target }) => {
  const errors = JSON.parse(form.elements.refused.value || '{}');
  delete errors[target.name];
  form.elements.refused.value = Object.keys(errors).length ? JSON.stringify(errors) : '';
});

/* The source ----------------------------------------------------------- */

let controller = null;
let reading = Promise.resolve();
let latest = ''; // what the source was read for
let isEntered = false;
let held = null; // a refused path that is still being typed

/** Reads the source if what determines its contents has changed; the server names that. */
function read() {
  const { scan } = form.elements;
  if (!scan) return;
  const chosen = files.filter((control) => !control.closest('[hidden]') && control.files.length);
  const state = [scan.value, ...chosen.flatMap((control) => [...control.files].map(({ name, size, lastModified }) => `${control.name} ${name} ${size} ${lastModified}`))].join('\n');
  if (state === latest) return;
  latest = state;
  controller?.abort();
  controller = new AbortController();
  const isGiven = chosen.length > 0 || scan.dataset.given !== undefined;
  setReading(isGiven);
  if (isGiven) reading = follow(scan.value, chosen, controller.signal);
  else show({ html: '' });
}

async function follow(scan, chosen, signal) {
  const all = new FormData(form);
  for (const control of files) if (!chosen.includes(control)) all.delete(control.name);
  try {
    const body = chosen.length ? all : new URLSearchParams(all);
    const { body: stream } = await request(region.dataset.url, { method: 'POST', body, signal });
    for await (const line of linesOf(stream)) if (!signal.aborted) await show(line, scan);
  } catch (error) {
    if (error.name === 'AbortError') return;
    await show({ html: '', refused: error.message, finished: true }, scan);
  }
  if (!signal.aborted) setReading(false);
}

// Screen readers wait for the last summary.
function setReading(is) {
  for (const part of [region, findings]) part.setAttribute('aria-busy', is);
}

/** Shows a summary of the source, or that there is none; the error of a path only once it has been entered. */
function show({ html, ...found }, scan = '') {
  const isTyped = found.refused && !isEntered && document.activeElement.matches('[data-path]');
  held = isTyped ? [found, scan] : null;
  // The images stay until there are new ones.
  if (!(html && found.finished && !html.includes('source-previews') && region.querySelector('.source-previews'))) region.innerHTML = html;
  region.hidden = !region.firstElementChild;
  if (html.includes('source-previews')) region.removeAttribute('aria-busy');
  return take(scan && !isTyped ? found : null, scan);
}

function take(found, scan) {
  form.elements.found.value = found ? JSON.stringify(found) : '';
  form.elements.found_scan.value = scan;
  return fields.ask();
}

/** Reads the source at once, and shows why its path is refused. */
async function load() {
  isEntered = true;
  if (held) await take(...held);
  held = null;
  await fields.ready();
  read();
}

for (const type of ['input', 'change']) {
  form.addEventListener(type, ({ target }) => {
    if (target.matches('[data-path]')) isEntered = false;
    if (files.includes(target)) read();
  });
}
form.addEventListener('focusout', ({ target }) => target.matches('[data-path]') && target.value.trim() && load());
// Enter loads the preview, and never creates a dataset.
form.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.defaultPrevented || !event.target.matches('input')) return;
  event.preventDefault();
  load();
});

async function* linesOf(stream) {
  let rest = '';
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + decoder.decode(part.value, { stream: true })).split('\n');
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

/* Buttons -------------------------------------------------------------- */

form.addEventListener('click', async (event) => {
  const button = event.target.closest('button, a[href^="#"]');
  const { fields: values, recommended, fill, show: id = button?.hash?.slice(1) } = button?.dataset ?? {};
  if (id) event.preventDefault();
  if (id) goTo(document.getElementById(id) ?? form.querySelector(`[name="${id}"]:checked`));
  if (fill) goTo(Object.assign(document.getElementById(fill), { value: `${button.dataset.value.replace(/\/$/, '')}/` }));
  if (values) use(JSON.parse(values), recommended !== undefined);
  if (!values) return;
  if (findings.contains(button)) findings.focus(); // because the button disappears
  fields.ask();
});

function goTo(control) {
  reveal(control);
  control.scrollIntoView({ block: 'center' });
  control.focus();
}

/** Fills in fields; they follow the recommendation from then on if it `isRecommended`. */
function use(values, isRecommended) {
  for (const [name, value] of Object.entries(values)) {
    const control = form.elements[name];
    if (control.type === 'checkbox') control.checked = value;
    else control.value = value;
    const target = control instanceof RadioNodeList ? [...control].find(({ checked }) => checked) : control;
    for (const type of ['input', 'change']) target.dispatchEvent(new Event(type, { bubbles: true }));
  }
  const { own } = form.elements;
  if (isRecommended) own.value = own.value.split(',').filter((name) => !(name in values)).join(',');
}

// Cloud storage needs the endpoint and the keys: expand their section.
form.addEventListener('change', ({ target }) => {
  const details = document.getElementById('remote-storage');
  if (details && target.name === 'method' && target.value === 's3') details.open = true;
});

// The list of further kinds closes like a menu.
const kinds = document.querySelector('.kind-more');
document.addEventListener('click', ({ target }) => {
  if (kinds && !kinds.contains(target)) kinds.open = false;
});
kinds?.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  kinds.open = false;
  kinds.querySelector('summary').focus();
});

startUploadFields(form);
fields.ask(); // what was restored may need other fields
