// Fetches this page again and updates the parts with data-refresh, so that only the server renders them.

import { request } from './http.js';
import { morph } from './morph.js';

const GATHER_MILLISECONDS = 1000;

let waiting = null;
let running = null;
let again = false;

/** Refreshes with at most one request at a time. Charts, editor and open panels are kept. */
export function refreshParts() {
  if (running) {
    again = true;
    return running;
  }
  running = update()
    .catch(() => {}) // The connection note reports it; rejoining refreshes again.
    .finally(() => {
      running = null;
      if (!again) return;
      again = false;
      refreshParts();
    });
  return running;
}

/** Refreshes at most once per second, for content that may change more often. */
export function refreshSoon() {
  waiting ??= setTimeout(() => {
    waiting = null;
    refreshParts();
  }, GATHER_MILLISECONDS);
}

async function update() {
  const response = await request(location.href.split('#')[0], { headers: { Accept: 'text/html' } });
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-refresh][id]')) {
    const next = fresh.getElementById(part.id);
    if (next) morph(part, next);
  }
  document.dispatchEvent(new CustomEvent('parts-refreshed'));
}
