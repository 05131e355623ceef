// The output of a job: loaded when its panel is open, and followed while it is scrolled to the end.

import { settled } from './settled.js';
import { getJson } from './http.js';

const GATHER_MILLISECONDS = 300;
const KEPT_CHUNKS = 40;

/** Follows the output in `panel` (a <details> with data-url). */
export function startLogTail(panel) {
  const view = panel.querySelector('pre');
  const last = panel.querySelector('#log-last');
  let next = 0;
  let busy = false;

  async function read() {
    if (busy || !panel.open) return;
    busy = true;
    try {
      for (let answer = null; answer === null || answer.text; ) {
        answer = await getJson(`${panel.dataset.url}?after=${next}`);
        next = answer.next;
        if (answer.text) append(answer.text);
      }
      if (!view.textContent) view.textContent = 'No output yet.';
    } catch {
      // The next message, or opening the panel again, retries.
    } finally {
      busy = false;
    }
  }

  function append(text) {
    const following = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
    if (view.childNodes.length === 1 && view.textContent === 'No output yet.') view.replaceChildren();
    view.append(text);
    while (view.childNodes.length > KEPT_CHUNKS) view.firstChild.remove();
    if (following) view.scrollTop = view.scrollHeight;
  }

  const readSoon = settled(read, GATHER_MILLISECONDS);

  panel.addEventListener('toggle', read);
  document.addEventListener('live-joined', readSoon);
  document.addEventListener('task-update', ({ detail: message }) => {
    if (message.update !== 'log') return;
    const line = message.text.trimEnd().split('\n').at(-1);
    if (line) last.textContent = line;
    if (panel.open) readSoon();
  });
}
