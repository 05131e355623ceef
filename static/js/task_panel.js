// A background task of a job, such as an evaluation: starts it from a panel, and shows its progress.

import { toast } from './dialog.js';
import { postForm } from './http.js';
import { setProgress } from './progress.js';
import { refreshParts } from './refresh.js';

// Milliseconds between partial results.
const PARTIAL_RESULTS = 5000;

/**
 * Returns a function that shows a message about the task with the id `name`: the server renders its start and its
 * results, which `refresh` fetches, and those so far from time to time.
 */
export function followTask(name, refresh = refreshParts) {
  let refreshed = Date.now();

  return (message) => {
    const doing = document.getElementById(`${name}-doing`);
    if (message.state !== 'running' || !doing || Date.now() - refreshed > PARTIAL_RESULTS) {
      refreshed = Date.now();
      refresh();
      return;
    }
    if (message.doing) doing.textContent = message.doing;
    setProgress(document.querySelector(`#${name}-status [data-meter]`), message.percentage, message.eta_seconds);
  };
}

/** Starts the panel with the id `name`, whose form starts a task, and returns a function that follows the task. */
export function startTaskPanel(name) {
  document.getElementById(name).addEventListener('submit', async (event) => {
    if (event.target.method !== 'post') return;
    event.preventDefault();
    try {
      await postForm(event.target.action, new FormData(event.target));
      await refreshParts();
      document.getElementById(`${name}-status`).focus({ preventScroll: true });
    } catch (error) {
      toast(error.message, 'danger');
    }
  });
  return followTask(name);
}
