// The models of model stores: filters them, and imports one without leaving the page until its job exists.

import { request, urlPrefix } from './http.js';
import { join } from './live.js';
import { setProgress } from './progress.js';

const status = document.getElementById('store-status');
const filter = document.getElementById('store-filter');
const rows = [...document.querySelectorAll('[data-model]')];

if (filter && rows.length > 1) {
  filter.hidden = false;
  filter.addEventListener('input', () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.words.includes(word));
    const count = rows.filter((row) => !row.hidden).length;
    status.textContent = `${count} ${count === 1 ? 'model' : 'models'}`;
  });
}

for (const row of rows) {
  const form = row.querySelector('form');
  form?.addEventListener('submit', (event) => {
    event.preventDefault();
    importModel(row, form);
  });
}

async function importModel(row, form) {
  const button = form.querySelector('button');
  const meter = row.querySelector('[data-progress]');
  const error = row.querySelector('[data-error]');
  button.disabled = true;
  button.setAttribute('aria-busy', 'true');
  error.hidden = true;
  meter.hidden = false;
  setProgress(meter.firstElementChild, 0);
  status.textContent = `Importing ${button.dataset.name}…`;
  try {
    const body = new URLSearchParams(new FormData(form));
    const created = await (await request(`${form.action}.json`, { method: 'POST', body })).json();
    location.assign(`${urlPrefix}/jobs/${created.id}`);
  } catch (failure) {
    error.textContent = [failure.message, failure.hint].filter(Boolean).join(' ');
    error.hidden = false;
    status.textContent = error.textContent;
    meter.hidden = true;
    button.disabled = false;
    button.removeAttribute('aria-busy');
  }
}

document.addEventListener('job-update', ({ detail }) => {
  const row = detail.model_id && document.querySelector(`[data-model="${CSS.escape(detail.model_id)}"]`);
  const meter = row?.querySelector('[data-progress]');
  if (meter && !meter.hidden) setProgress(meter.firstElementChild, detail.progress);
});
if (rows.length) join('job_management');
