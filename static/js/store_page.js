// The models of model stores: loads each store separately, filters the models, and imports one without leaving the
// page until its job exists.

import { countOf } from './format.js';
import { request, urlPrefix, wordsOf } from './http.js';
import { join } from './live.js';
import { morph } from './morph.js';
import { setProgress } from './progress.js';
import { fragment } from './swap.js';

const stores = document.getElementById('stores');
const status = document.getElementById('store-status');
const filter = document.getElementById('store-filter');

if (filter) {
  join('job_management');
  applyFilter();
  filter.addEventListener('input', () => {
    status.textContent = countOf(applyFilter(), 'model');
  });
  for (const panel of stores.querySelectorAll('[data-store][aria-busy]')) load(panel, panel.dataset.store);
}

/** Hides the models that do not match the filter; returns the number of others. */
function applyFilter() {
  const rows = [...stores.querySelectorAll('[data-model]')];
  filter.hidden = rows.length < 2;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) row.hidden = !words.every((word) => row.dataset.words.includes(word));
  return rows.filter((row) => !row.hidden).length;
}

/** Shows a store when the server has read it; `url` is the page with only this store. */
async function load(panel, url) {
  setLoading(panel, true);
  try {
    const fresh = (await fragment(url)).querySelector('[data-store]');
    // An import shows its progress in the list that is being replaced.
    if (panel.querySelector('form [aria-busy]')) setLoading(panel, false);
    else morph(panel, fresh);
    applyFilter();
    status.textContent = `${panel.getAttribute('aria-label')}: ${panel.querySelector('[data-count]').textContent}`;
  } catch (failure) {
    setLoading(panel, false);
    showProblem(panel, failure);
  }
}

function setLoading(panel, isLoading) {
  if (isLoading) panel.setAttribute('aria-busy', 'true');
  else panel.removeAttribute('aria-busy');
  panel.querySelector('[data-loading]').hidden = !isLoading;
  panel.querySelector('[data-count]').hidden = isLoading;
  if (isLoading) panel.querySelector('[data-problem]').hidden = true;
}

function showProblem(panel, failure) {
  const problem = panel.querySelector('[data-problem]');
  problem.querySelector('p').textContent = wordsOf(failure);
  problem.hidden = false;
}

stores.addEventListener('click', (event) => {
  const retry = event.target.closest('[data-retry]');
  if (!retry || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const panel = retry.closest('[data-store]');
  panel.focus({ preventScroll: true }); // the link disappears
  load(panel, retry.href);
});

stores.addEventListener('submit', (event) => {
  event.preventDefault();
  importModel(event.target.closest('[data-model]'), event.target);
});

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
    error.textContent = wordsOf(failure);
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
