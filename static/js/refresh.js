// Fetches this page again and swaps the parts that carry data-refresh. The server draws; nothing is written twice.

import { request } from './http.js';

let running = null;
let again = false;

/** Swaps the parts once more, at most one request at a time. Charts, editor and open panels stay. */
export function refreshParts() {
  if (running) {
    again = true;
    return running;
  }
  running = swap().finally(() => {
    running = null;
    if (!again) return;
    again = false;
    refreshParts();
  });
  return running;
}

async function swap() {
  const response = await request(location.href.split('#')[0], { headers: { Accept: 'text/html' } });
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-refresh][id]')) {
    const next = fresh.getElementById(part.id);
    if (!next || next.outerHTML === part.outerHTML) continue;
    if (part.contains(document.activeElement) && part.matches(':has(input:focus, textarea:focus)')) continue;
    part.replaceWith(document.adoptNode(next));
  }
  document.dispatchEvent(new CustomEvent('parts-refreshed'));
}
