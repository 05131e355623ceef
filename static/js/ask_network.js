// Buttons that make the server build the network, and the region in which they show the result.

import { element } from './element.js';
import { errorBox } from './error_box.js';

const SECOND = 1000;

/**
 * On click on `button`, shows `doing`, awaits `ask(watch)`, and passes the response to `show(region, answer)`.
 * `watch.stage = () => words` can report the current stage.
 * Errors are shown and passed to `failed(error)`; `refused(region, error)` may handle one by returning true.
 */
export function startAsking(button, region, { doing, ask, show, failed, refused = () => false }) {
  button.addEventListener('click', async () => {
    if (region.getAttribute('aria-busy') === 'true') return;
    for (const busy of [button, region]) busy.setAttribute('aria-busy', 'true');
    region.hidden = false;
    const progress = startProgress(region, doing);
    let shown = region;
    try {
      show(region, await ask(progress));
    } catch (error) {
      if (await refused(region, error)) shown = null;
      else {
        region.replaceChildren(errorBox(error));
        await failed(error);
      }
    } finally {
      progress.stop();
      for (const busy of [button, region]) busy.removeAttribute('aria-busy');
      shown?.scrollIntoView({ block: 'nearest' });
    }
  });
}

/** Shows `doing`, the elapsed time, and the stage that `stage()`, if set, returns when polled. */
function startProgress(region, doing) {
  const box = element('div', 'step-progress stack stack-tight');
  const line = element('p', 'muted small');
  const words = element('span', '', doing);
  words.setAttribute('role', 'status');
  const seconds = element('span', 'number');
  seconds.setAttribute('aria-hidden', 'true'); // announcing every second would be too verbose
  const bar = element('span', 'progress');
  bar.setAttribute('aria-hidden', 'true');
  bar.append(element('span', 'progress-fill'));
  line.append(words, ' ', seconds);
  box.append(line);
  region.replaceChildren(box);

  const began = performance.now();
  const progress = { stage: null, stop: () => clearInterval(timer) };
  const timer = setInterval(async () => {
    seconds.textContent = `${Math.round((performance.now() - began) / 1000)} s`;
    if (!bar.isConnected) box.append(bar); // not for short operations
    const stage = await progress.stage?.().catch(() => null);
    if (stage && stage !== words.textContent) words.textContent = stage;
  }, SECOND);
  return progress;
}
