// The activities of a job, such as its evaluations: starts and stops their tasks, and shows their progress. The server
// renders the parts with data-activity: their states, results and forms.

import { toast } from './dialog.js';
import { postForm } from './http.js';
import { join } from './live.js';
import { setProgress } from './progress.js';
import { refreshParts } from './refresh.js';

// Milliseconds between partial results.
const PARTIAL_RESULTS = 5000;

let refreshed = Date.now();

document.addEventListener('submit', async (event) => {
  const form = event.target;
  const panel = form.closest('[data-activity]');
  if (!panel || form.method !== 'post') return;
  event.preventDefault();
  try {
    const answer = await postForm(form.action, new FormData(form));
    document.dispatchEvent(new CustomEvent('activity-started', { detail: answer }));
    await refreshParts();
    document.getElementById(panel.id)?.querySelector('[role="status"]')?.focus({ preventScroll: true });
  } catch (error) {
    toast(error.message, 'danger');
  }
});

document.addEventListener('task-update', ({ detail: message }) => {
  const panel = document.querySelector(`[data-activity="${CSS.escape(message.update)}"][data-job="${CSS.escape(message.job_id)}"]`);
  if (!panel || (panel.dataset.key && panel.dataset.key !== message.key)) return;
  const stage = panel.querySelector('[data-stage]');
  if (message.state !== 'running' || !stage || Date.now() - refreshed > PARTIAL_RESULTS) {
    refreshed = Date.now();
    refreshParts();
    return;
  }
  if (message.doing) stage.textContent = message.doing;
  setProgress(panel.querySelector('[data-meter]'), message.percentage, message.eta_seconds);
});

document.addEventListener('live-joined', ({ detail }) => detail.missed && refreshParts());
for (const { dataset } of document.querySelectorAll('[data-activity][data-job]')) join(dataset.job);
