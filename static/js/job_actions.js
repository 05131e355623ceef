// Buttons that abort, resume or delete a job: data-action, data-url, data-name and, for the page after deletion, data-then.

import { confirmed, toast } from './dialog.js';
import { request, wordsOf } from './http.js';

const ACTIONS = {
  abort: {
    title: (name) => `Abort “${name}”?`,
    text: 'The job stops immediately. Files written so far are kept.',
    yes: 'Abort',
    keep: 'Keep running',
    send: (url) => request(url, { method: 'POST' }),
    said: (name) => `Aborting “${name}”.`,
  },
  resume: {
    send: (url) => request(url, { method: 'POST' }),
    said: (name) => `Resuming “${name}”.`,
  },
  delete: {
    title: (name) => `Delete “${name}”?`,
    text: 'The job’s folder and all files in it are permanently deleted.',
    yes: 'Delete',
    keep: 'Cancel',
    send: (url) => request(url, { method: 'DELETE' }),
    said: (name) => `Deleted “${name}”.`,
  },
};

/** Listens for clicks on the whole page, so that rows added later work too. */
export function startJobActions() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('[data-action]');
    if (!button) return;
    const action = ACTIONS[button.dataset.action];
    const { name, url, then } = button.dataset;
    if (!(await (action.title ? asked(action, name, url) : sent(action, button)))) return;
    toast(action.said(name));
    document.dispatchEvent(new CustomEvent('job-action', { detail: { action: button.dataset.action, url } }));
    if (button.dataset.action === 'delete' && then) location.assign(then);
  });
}

function asked({ title, text, yes, keep, send }, name, url) {
  return confirmed({ title: title(name), text, yes, keep, action: () => send(url) });
}

/** Runs a reversible action without confirmation. Resolves to whether it succeeded. */
async function sent({ send }, button) {
  button.disabled = true;
  try {
    await send(button.dataset.url);
    return true;
  } catch (error) {
    toast(wordsOf(error), 'danger');
    return false;
  } finally {
    button.disabled = false;
  }
}
