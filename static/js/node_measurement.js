// Measures the workers of a training on nodes of its cluster, on request, in place of the estimate of a check.

import { button, element, notice } from './element.js';
import { ahead, duration } from './format.js';
import { getJson, postForm, request, urlPrefix } from './http.js';
import { errorBox } from './error_box.js';

const ASK_MILLISECONDS = 1000;

const address = (rest) => `${urlPrefix}/models/measurements${rest}`;

/**
  * Returns functions: `offer(region, check)` adds a button to `region`, the inside of the notice with the estimate of
  * the check with the id `check`, which the result replaces; `stop()` cancels the measurement, also in the queue of the cluster.
 */
export function startNodeMeasurement(form) {
  // The measurement that has not ended: {id, restore}, without `id` until the server has named it.
  let current = null;

  const isOnCluster = () => (form.elements.compute_target?.value ?? 'local') !== 'local';

  function offer(region, check) {
    if (!isOnCluster()) return;
    region.classList.add('stack', 'stack-tight');
    const help = element('span', 'help', 'A short job compares the workers with one over the real network.');
    region.append(element('div', 'row', button('button button-small', 'Measure on the nodes', () => measure(region, check)), help));
  }

  async function measure(region, check) {
    stop();
    region.querySelector('[role="alert"]')?.remove(); // of an earlier measurement
    const estimate = [...region.childNodes];
    const mine = (current = { restore: () => region.replaceChildren(...estimate) });
    const words = element('p', { role: 'status' }, 'Submitting the measurement…');
    const seconds = element('span', { class: 'number muted', 'aria-hidden': 'true' });
    const cancel = button('button button-small', 'Cancel', () => {
      stop();
      region.querySelector('button')?.focus();
    });
    region.replaceChildren(words, element('div', 'row', cancel, seconds));
    cancel.focus();
    const fields = new FormData(form);
    fields.set('preflight', check);
    try {
      let state = await postForm(address(''), fields);
      mine.id = state.id;
      if (mine !== current) return cancelOnServer(mine.id);
      while (state.state === 'waiting' || state.state === 'running') {
        if (stageOf(state) !== words.textContent) words.textContent = stageOf(state);
        seconds.textContent = duration(state.seconds);
        await new Promise((resolve) => setTimeout(resolve, ASK_MILLISECONDS));
        if (mine !== current) return undefined;
        state = await getJson(address(`/${mine.id}`));
      }
      if (mine !== current) return undefined;
      current = null;
      if (state.workers) return region.parentElement.replaceWith(forecastNotice(state.workers));
      mine.restore();
      if (state.error) region.append(errorBox(state.error));
    } catch (error) {
      if (mine !== current) return undefined;
      stop();
      region.append(errorBox(error));
    }
    return undefined;
  }

  function stop() {
    const stopped = current;
    current = null;
    stopped?.restore();
    if (stopped?.id) cancelOnServer(stopped.id);
  }

  window.addEventListener('pagehide', stop);
  form.addEventListener('submit', stop);
  return { offer, stop };
}

// The request survives the page.
const cancelOnServer = (id) => void request(address(`/${id}/cancel`), { method: 'POST', keepalive: true }).catch(() => {});

/** A notice with a forecast: a warning if the workers are hardly faster than one. */
export function forecastNotice({ message, is_faster: isFaster = true }) {
  return notice(isFaster ? 'tone-info' : 'tone-warning', element('p', '', message));
}

function stageOf({ state, doing, waiting_at: at, waiting_for: reason, expected_start: start, nodes }) {
  if (state === 'running') return `${doing || 'Starting'}${nodes && ` on ${nodes}`}…`;
  if (!reason) return 'Submitting the measurement…';
  return `Waiting at ${at} because ${reason}${start ? `; expected to start ${ahead(start)}` : ''}`;
}
