// The page of the compute targets: starts checks, and keeps the state of targets and jobs up to date.

import { toast } from './dialog.js';
import { postForm } from './http.js';
import { join } from './live.js';
import { setProgress } from './progress.js';
import { refreshParts, refreshSoon } from './refresh.js';

// Schedulers send no messages.
const CHECK_MILLISECONDS = 1000;
const REFRESH_MILLISECONDS = 10_000;
let timer = 0;

function watchLater() {
  clearTimeout(timer);
  timer = setTimeout(watch, document.querySelector('[data-running]') ? CHECK_MILLISECONDS : REFRESH_MILLISECONDS);
}

async function watch() {
  if (!document.hidden) await refreshParts();
  watchLater();
}

document.addEventListener('submit', async (event) => {
  const form = event.target.closest('[data-check]');
  if (!form) return;
  event.preventDefault();
  try {
    await postForm(form.action, new FormData(form));
    await watch();
  } catch (error) {
    toast(error.message, 'danger');
  }
});

document.addEventListener('job-update', ({ detail: message }) => {
  if (message.update !== 'progress') return refreshSoon();
  const meter = document.querySelector(`[data-job="${CSS.escape(message.job_id)}"] [data-meter]`);
  if (meter) setProgress(meter, message.percentage, message.eta_seconds);
});
document.addEventListener('live-joined', ({ detail }) => detail.missed && refreshSoon());
join('job_management');
watchLater();
