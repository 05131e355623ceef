// The predictions for the same images in each epoch: computed when their panel is opened, and after new snapshots.

import { startEpochSlider } from './epoch_slider.js';
import { request } from './http.js';
import { errorBox } from './trace.js';

export function startEpochPredictions(panel) {
  if (!panel) return; // an imported model
  const area = panel.querySelector('.panel-body');
  let url = panel.dataset.url;
  let shown = null; // the snapshots that are shown
  let asked = 0;

  const snapshots = () => [...document.querySelectorAll('#snapshots [data-epoch]')].map(({ dataset }) => dataset.epoch).join();

  async function load() {
    const number = (asked += 1);
    const known = snapshots();
    area.setAttribute('aria-busy', 'true');
    if (!area.childElementCount) area.textContent = 'Computing…';
    try {
      const answer = await request(url, { headers: { 'X-Fragment': 'epochs', Accept: 'text/html' } });
      const text = await answer.text();
      if (number !== asked) return;
      const old = area.querySelector('input[type="range"]');
      const kept = old && old.value !== old.max ? area.querySelector('output').textContent : '';
      const template = document.createElement('template');
      template.innerHTML = text;
      area.replaceChildren(template.content);
      startEpochSlider(area, kept);
      shown = known;
    } catch (error) {
      if (number === asked) area.replaceChildren(errorBox(error.body?.error?.message ? error.body.error : error));
    } finally {
      if (number === asked) area.removeAttribute('aria-busy');
    }
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
