// Builds the network on the server and shows its layers and graph below the form's network.

import { startAsking } from './ask_network.js';
import { element } from './element.js';
import { postForm, urlPrefix } from './http.js';
import { startTabs } from './tabs.js';

const STARTING = 202;
const START_TRIES = 90;
const START_MILLISECONDS = 500;

/** `network()` returns the text to build; `failed(error)` receives the error after it is shown. */
export function startVisualizing(form, button, result, { network, failed }) {
  startAsking(button, result, {
    doing: 'Building the network…',
    async ask() {
      const fields = new FormData(form);
      fields.set('custom_network', await network());
      return postForm(`${urlPrefix}/models/visualize-network`, fields);
    },
    show,
    failed,
  });
}

function show(result, { layers, parameters, tensorboard_url: address, seconds }) {
  const fresh = document.getElementById('visualized').content.cloneNode(true);
  fresh.querySelector('.visualized-total').textContent = `${parameters.toLocaleString('en')} parameters · ${seconds.toFixed(1)} s`;
  fresh.querySelector('tbody').append(...layers.map(layerRow));
  // Without the fragment, because the page that waits for TensorBoard would not reload with one.
  for (const link of fresh.querySelectorAll('[data-graph-link]')) link.href = address.split('#')[0];
  result.replaceChildren(fresh);
  startTabs(result.querySelector('[role="tablist"]'), (panel) => {
    // The graph's layout depends on the size of its frame, so load it only when it is visible.
    if (panel.querySelector('iframe:not([src])')) loadGraph(panel, address);
  });
}

/** Shows TensorBoard in the panel's frame once its process responds. */
async function loadGraph(panel, address) {
  const words = panel.querySelector('[data-graph-words]');
  if (words.dataset.waiting) return;
  words.dataset.waiting = 'true';
  const frame = panel.querySelector('iframe');
  try {
    for (let left = START_TRIES; ; left -= 1) {
      const { status } = await fetch(address.split('#')[0], { credentials: 'same-origin' });
      if (status === 200) break;
      if (status !== STARTING || left === 0) throw new Error(`TensorBoard did not start (${status}).`);
      await new Promise((resolve) => setTimeout(resolve, START_MILLISECONDS));
    }
    frame.addEventListener('load', () => hideHeader(frame));
    frame.src = address;
    frame.hidden = false;
    words.hidden = true;
    panel.parentElement.scrollIntoView({ block: 'start' });
  } catch (error) {
    words.textContent = error.message;
  } finally {
    delete words.dataset.waiting;
  }
}

/** Hides TensorBoard's own header, which offers nothing but the graph here. */
function hideHeader({ contentWindow, contentDocument }) {
  const style = new contentWindow.CSSStyleSheet();
  style.replaceSync('app-header { display: none !important; }');
  contentDocument.adoptedStyleSheets = [style];
}

function layerRow({ name, type, shape, parameters }) {
  return element(
    'tr',
    '',
    element('th', { scope: 'row' }, element('code', '', name)),
    element('td', '', type),
    element('td', 'nowrap', shape.map((size) => size ?? 'batch').join(' × ')),
    element('td', 'end', parameters.toLocaleString('en')),
  );
}
