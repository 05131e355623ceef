// Buttons that abort, resume or delete a job: data-action, data-url, data-name and, for the page to open then, data-then.
// If others use a job, data-users has their ids, which are deleted first, and data-warning says so.

import { confirmed, toast } from './dialog.js';
import { request, requestForJobs, wordsOf } from './http.js';

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
    send: (url, { users }) => (users ? requestForJobs('/jobs', 'DELETE', [...users.split(' '), url.split('/').at(-1)]) : request(url, { method: 'DELETE' })),
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
    if (!(await (action.title ? asked(action, button.dataset) : sent(action, button)))) return;
    toast(action.said(name));
    document.dispatchEvent(new CustomEvent('job-action', { detail: { action: button.dataset.action, url } }));
    if (then) location.assign(then);
  });
}

function asked({ title, text, yes, keep, send }, data) {
  const words = data.warning ? `${data.warning} ${text}` : text;
  return confirmed({ title: title(data.name), text: words, yes: data.users ? `${yes} all ${data.users.split(' ').length + 1}` : yes, keep, action: () => send(data.url, data) });
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
