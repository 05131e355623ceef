// The Uploads page: deletes uploads, and unpacks them with another encoding of file names.

import { confirmed, toast } from './dialog.js';
import { postForm, request, wordsOf } from './http.js';
import { refreshParts } from './refresh.js';

document.addEventListener('click', async (event) => {
  const choice = event.target.closest?.('[data-unpack]');
  if (choice) return unpack(choice.dataset);
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

async function unpack({ unpack: url, encoding }) {
  try {
    await postForm(url, { encoding });
  } catch (error) {
    toast(wordsOf(error), 'danger');
  }
  await refreshParts();
}
