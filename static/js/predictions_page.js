// The page of a batch prediction: shows further results while the task runs, stops it, and deletes the results.

import { confirmed, toast } from './dialog.js';
import { postForm, request } from './http.js';
import { join } from './live.js';
import { setProgress } from './progress.js';
import { refreshParts } from './refresh.js';

const PARTIAL_RESULTS = 5000; // milliseconds between them

const status = document.getElementById('prediction-status');
const { job, prediction } = status.dataset;
let refreshed = 0;

function refresh() {
  refreshed = Date.now();
  return refreshParts();
}

document.addEventListener('task-update', ({ detail: message }) => {
  if (message.update !== 'prediction' || message.job_id !== job || message.key !== prediction) return;
  const meter = status.querySelector('[data-meter]');
  if (message.state !== 'running' || !meter || Date.now() - refreshed > PARTIAL_RESULTS) {
    refresh();
    return;
  }
  setProgress(meter, message.percentage, message.eta_seconds);
  document.getElementById('prediction-doing').textContent = message.doing;
});
document.addEventListener('live-joined', ({ detail }) => detail.missed && refresh());
join(job);

document.addEventListener('submit', async (event) => {
  if (event.target.id !== 'stop-form') return;
  event.preventDefault();
  event.submitter.disabled = true;
  try {
    await postForm(event.target.action, new FormData(event.target));
    await refresh();
  } catch (error) {
    toast(error.message, 'danger');
    event.submitter.disabled = false;
  }
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest?.('#delete-predictions');
  if (!button) return;
  const { name, url, model } = button.dataset;
  const isDone = await confirmed({
    title: `Delete the predictions for “${name}”?`,
    text: 'The results and the uploaded images are permanently deleted.',
    yes: 'Delete',
    action: () => request(url, { method: 'DELETE' }),
  });
  if (isDone) window.location.assign(model);
});
