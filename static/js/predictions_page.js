// The page of a batch prediction: shows further results while the task runs, stops it, and deletes the results.

import { confirmed, toast } from './dialog.js';
import { postForm, request } from './http.js';
import { join } from './live.js';
import { refreshParts } from './refresh.js';
import { followTask } from './task_panel.js';

const { job, prediction } = document.getElementById('prediction-status').dataset;
const show = followTask('prediction');

document.addEventListener('task-update', ({ detail: message }) => {
  if (message.update === 'prediction' && message.job_id === job && message.key === prediction) show(message);
});
document.addEventListener('live-joined', ({ detail }) => detail.missed && refreshParts());
join(job);

document.addEventListener('submit', async (event) => {
  if (event.target.id !== 'stop-form') return;
  event.preventDefault();
  event.submitter.disabled = true;
  try {
    await postForm(event.target.action, new FormData(event.target));
    await refreshParts();
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
