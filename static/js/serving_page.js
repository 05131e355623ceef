// The list of production models: removes names.

import { confirmed } from './dialog.js';
import { request } from './http.js';
import { refreshParts } from './refresh.js';

document.getElementById('production').addEventListener('click', async ({ target }) => {
  const button = target.closest('[data-remove]');
  if (!button) return;
  const { remove, name } = button.dataset;
  const action = () => request(remove, { method: 'DELETE' });
  const text = 'Programs that use this address get errors.';
  if (await confirmed({ title: `Stop serving “${name}”?`, text, yes: 'Remove', action })) await refreshParts();
});
