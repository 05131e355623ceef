// The page of predictions for many images: shows further results while the task runs; stops and deletes them.

import { confirmed, toast } from './dialog.js';
import { postForm, request } from './http.js';
import { refreshParts } from './refresh.js';

const POLL_MILLISECONDS = 1000;

async function follow() {
  const isActive = () => ['waiting', 'running'].includes(document.getElementById('prediction-status').dataset.state);
  while (isActive()) {
    await new Promise((resolve) => {
      setTimeout(resolve, POLL_MILLISECONDS);
    });
    await refreshParts();
  }
}

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

follow();
