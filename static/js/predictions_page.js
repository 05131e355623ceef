// The page of a batch prediction: shows further results while the task runs, and deletes them.

import './activities.js';
import { confirmed } from './dialog.js';
import { request } from './http.js';

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
