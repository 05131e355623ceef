// The list of production models: removes names.

import { confirmed, toast } from './dialog.js';
import { request } from './http.js';
import { refreshParts } from './refresh.js';

document.getElementById('production').addEventListener('click', async ({ target }) => {
  const button = target.closest('[data-remove]');
  if (!button) return;
  const { remove, name } = button.dataset;
  if (!(await confirmed({ title: `Stop serving “${name}”?`, text: 'Programs that use this address get errors.', yes: 'Remove' }))) return;
  try {
    await request(remove, { method: 'DELETE' });
    await refreshParts();
  } catch (error) {
    toast(error.message);
  }
});
