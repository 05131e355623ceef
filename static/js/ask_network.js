// Buttons that have the server build the network, and the region that they share for what came of it.

import { errorBox } from './trace.js';

// What each region is being asked, or was asked last.
const turns = new WeakMap();

/**
 * On a click: says `doing`, waits for `ask(isClick)`, and hands its answer to `show(region, answer)`.
 * A mistake is shown and then told to `failed(fault)`; `refused(region, error)` may take it over by answering true.
 * Answers a function that does the same without a click, as soon as the region is free, and answers {answer} or {error}.
 */
export function startAsking(button, region, { doing, ask, show, failed, refused = () => false }) {
  async function run(isClick) {
    for (const element of [button, region]) element.setAttribute('aria-busy', 'true');
    region.hidden = false;
    region.replaceChildren(note(doing));
    let shown = region;
    try {
      const answer = await ask(isClick);
      show(region, answer);
      return { answer };
    } catch (error) {
      const fault = error.body?.error?.message ? error.body.error : error;
      if (refused(region, error)) shown = null;
      else {
        region.replaceChildren(errorBox(fault));
        await failed(fault);
      }
      return { error };
    } finally {
      for (const element of [button, region]) element.removeAttribute('aria-busy');
      shown?.scrollIntoView({ block: 'nearest' });
    }
  }

  function inTurn(isClick) {
    const turn = Promise.resolve(turns.get(region)).then(() => run(isClick));
    turns.set(region, turn);
    return turn;
  }

  // Clicks are not collected while one is being answered.
  button.addEventListener('click', () => region.getAttribute('aria-busy') === 'true' || inTurn(true));
  return () => inTurn(false);
}

function note(text) {
  const line = document.createElement('p');
  line.className = 'muted small';
  line.setAttribute('role', 'status');
  line.textContent = text;
  return line;
}
