// The predictions for the same images in each epoch: computed when their panel is opened, and after new snapshots.

import { startEpochSlider } from './epoch_slider.js';
import { fragment, swapping } from './swap.js';

export function startEpochPredictions(panel) {
  if (!panel) return; // an imported model
  const area = panel.querySelector('.panel-body');
  let url = panel.dataset.url;
  let shown = null; // the snapshots that are shown
  const swap = swapping(area);

  const snapshots = () => [...document.querySelectorAll('#snapshots [data-epoch]')].map(({ dataset }) => dataset.epoch).join();

  function load() {
    const known = snapshots();
    if (!area.childElementCount) area.textContent = 'Computing…';
    swap(
      (signal) => fragment(url, { signal, headers: { 'X-Fragment': 'epochs', Accept: 'text/html' } }),
      (fresh) => {
        const old = area.querySelector('input[type="range"]');
        const kept = old && old.value !== old.max ? area.querySelector('output').textContent : '';
        area.replaceChildren(fresh);
        startEpochSlider(area, kept);
        shown = known;
      },
    );
  }

  function follow() {
    const generates = JSON.parse(document.getElementById('latent-data').textContent) > 0;
    panel.hidden = generates || !snapshots();
    if (panel.open && !panel.hidden && snapshots() !== shown) load();
  }

  panel.addEventListener('toggle', follow);
  panel.addEventListener('click', ({ target }) => {
    if (!target.dataset.next) return;
    url = target.dataset.next;
    load();
  });
  document.addEventListener('parts-refreshed', follow);
  follow();
}
