// Fetches this page again and updates the parts with data-refresh, so that only the server renders them. Then it
// dispatches `parts-refreshed` with the `fresh` page and the time when it was `asked` for, in `performance.now()`.

import { RequestError, advanceLiveCursor, request } from './http.js';
import { morph } from './morph.js';

const GATHER_MILLISECONDS = 1000;
const RETRY_MILLISECONDS = 3000;
const TOO_BUSY = 429;

let waiting = null;
let running = null;
let again = false;

/** Refreshes with at most one request at a time. Charts, editor, open panels and chosen options are kept. */
export function refreshParts() {
  if (running) {
    again = true;
    return running;
  }
  running = update()
    .catch(fail)
    .finally(() => {
      running = null;
      if (!again) return;
      again = false;
      refreshParts();
    });
  return running;
}

/** Without a connection, which a note reports, joining refreshes again. */
function fail({ status }) {
  if (status === TOO_BUSY || status >= 500) setTimeout(refreshParts, RETRY_MILLISECONDS);
  if (status === 404) document.dispatchEvent(new CustomEvent('page-gone'));
}

/** Refreshes at most once per second, for content that may change more often. */
export function refreshSoon() {
  waiting ??= setTimeout(() => {
    waiting = null;
    refreshParts();
  }, GATHER_MILLISECONDS);
}

async function update() {
  const asked = performance.now();
  const response = await request(location.href.split('#')[0], { headers: { Accept: 'text/html' } });
  if (response.redirected) throw new RequestError('This is another page, for instance because the login expired.');
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-refresh][id]')) {
    const next = fresh.getElementById(part.id);
    if (next) morph(part, next, { keepsChoices: true });
  }
  document.dispatchEvent(new CustomEvent('parts-refreshed', { detail: { fresh, asked } }));
  advanceLiveCursor(fresh);
}
