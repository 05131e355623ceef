// Fetches this page again and brings the parts that carry data-refresh up to date. The server draws; nothing is written twice.

import { Idiomorph } from '../vendor/idiomorph.js';
import { request } from './http.js';

// Elements stay the same ones, so that a click in that moment counts, the focus stays, and so does what is being typed.
const MORPH = {
  morphStyle: 'outerHTML',
  callbacks: {
    beforeNodeMorphed: (old) => !(old === document.activeElement && old.matches('input, select, textarea')),
    beforeAttributeUpdated: (name, element) => !(name === 'open' && element.matches('details')),
  },
};

let running = null;
let again = false;

/** Does it once more, at most one request at a time. Charts, editor and open panels stay. */
export function refreshParts() {
  if (running) {
    again = true;
    return running;
  }
  running = update().finally(() => {
    running = null;
    if (!again) return;
    again = false;
    refreshParts();
  });
  return running;
}

async function update() {
  const response = await request(location.href.split('#')[0], { headers: { Accept: 'text/html' } });
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-refresh][id]')) {
    const next = fresh.getElementById(part.id);
    if (next) Idiomorph.morph(part, next, MORPH);
  }
  document.dispatchEvent(new CustomEvent('parts-refreshed'));
}
