// The page of predictions for many images: shows further results while the task runs.

import { refreshParts } from './refresh.js';

const POLL_MILLISECONDS = 1000;

async function follow() {
  const state = () => document.getElementById('prediction-status').dataset.state;
  while (state() === 'running') {
    await new Promise((resolve) => {
      setTimeout(resolve, POLL_MILLISECONDS);
    });
    await refreshParts();
  }
}

follow();
