// Buttons that abort or delete a job, wherever they stand: data-action, data-url, data-name and, after a delete, data-then.

import { confirmed, toast } from './dialog.js';
import { request } from './http.js';

const ACTIONS = {
  abort: {
    title: (name) => `Abort “${name}”?`,
    text: 'It stops now. What it has written so far stays.',
    yes: 'Abort',
    keep: 'Let it run',
    send: (url) => request(url, { method: 'POST' }),
    said: (name) => `“${name}” is stopping.`,
  },
  delete: {
    title: (name) => `Delete “${name}”?`,
    text: 'Its folder and everything in it is removed from the disk. This cannot be undone.',
    yes: 'Delete',
    keep: 'Keep it',
    send: (url) => request(url, { method: 'DELETE' }),
    said: (name) => `“${name}” was deleted.`,
  },
};

/** Listens for clicks in the whole page, so that rows that come later work too. */
export function startJobActions() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('[data-action]');
    if (!button) return;
    const action = ACTIONS[button.dataset.action];
    const { name, url, then } = button.dataset;
    const done = await confirmed({ title: action.title(name), text: action.text, yes: action.yes, keep: action.keep, action: () => action.send(url) });
    if (!done) return;
    toast(action.said(name));
    document.dispatchEvent(new CustomEvent('job-action', { detail: { action: button.dataset.action, url } }));
    if (button.dataset.action === 'delete' && then) location.assign(then);
  });
}
