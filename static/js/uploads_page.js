// The Uploads page: deletes uploads.

import { confirmed, toast } from './dialog.js';
import { request } from './http.js';
import { refreshParts } from './refresh.js';

document.addEventListener('click', async (event) => {
  const button = event.target.closest?.('[data-delete-upload]');
  if (!button) return;
  const { name, deleteUpload: url } = button.dataset;
  const isDone = await confirmed({
    title: `Delete “${name}”?`,
    text: 'The uploaded files are permanently deleted. Datasets created from them are kept, but cannot be cloned.',
    yes: 'Delete',
    action: () => request(url, { method: 'DELETE' }),
  });
  if (!isDone) return;
  toast(`Deleted “${name}”.`);
  await refreshParts();
  document.getElementById('main').focus();
});
