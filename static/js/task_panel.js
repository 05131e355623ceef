// A panel of a model's page for a background task, such as its evaluation: starts the task and shows its progress.

import { toast } from './dialog.js';
import { postForm } from './http.js';
import { setProgress } from './progress.js';
import { refreshParts } from './refresh.js';

/**
 * Starts the panel with the id `name`. Returns a function that shows a message about the task: the server renders its
 * start and its results, and the current ones every `partial` milliseconds.
 */
export function startTaskPanel(name, partial = Infinity) {
  const panel = document.getElementById(name);
  let refreshed = Date.now();

  panel.addEventListener('submit', async (event) => {
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

  return (message) => {
    const doing = document.getElementById(`${name}-doing`);
    if (message.state !== 'running' || !doing || Date.now() - refreshed > partial) {
      refreshed = Date.now();
      return refreshParts();
    }
    doing.textContent = message.doing;
    setProgress(panel.querySelector('[data-meter]'), message.percentage, message.eta_seconds);
  };
}
