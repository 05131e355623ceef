// Estimates the accuracy of fine-tuning while the form of a model is open, from a quick test on a few training images.

import { postForm, request, uniqueName, urlPrefix } from './http.js';

const PERCENT = 100;

/**
  * `weights()` returns the name of the ImageNet weights on the server that the form uses, or "" if there are none or the
  * dataset has no classes. Returns functions: `probe()` estimates the accuracy unless that has been done, and calls
  * `show(words)`; `stop()` cancels it.
 */
export function startAccuracyProbe(form, weights, show) {
  // The server cancels any earlier estimate of this form.
  const name = uniqueName();
  let latest = '';
  let asking = null;

  async function probe() {
    const fields = { dataset: form.elements.dataset.value, name: weights(), form: name };
    const wanted = `${fields.dataset} ${fields.name}`;
    if (wanted === latest) return;
    latest = wanted;
    asking?.abort();
    const current = (asking = new AbortController());
    show(fields.name && 'Estimating the accuracy…');
    if (!fields.name) return;
    try {
      const answer = await postForm(`${urlPrefix}/models/probe-accuracy`, fields, { signal: current.signal });
      if (current === asking) show(inWords(answer));
    } catch {
      if (current === asking) show(''); // The recommendation is complete without it.
    }
  }

  function stop() {
    latest = '';
    asking?.abort();
    request(`${urlPrefix}/models/probe-accuracy/stop`, { method: 'POST', body: new URLSearchParams({ form: name }), keepalive: true }).catch(() => {});
  }

  window.addEventListener('pagehide', stop);
  return { probe, stop };
}

/** Describes an estimate: "About 81–91% accuracy, estimated from 200 images". */
export function inWords({ low, high, images }) {
  const [from, to] = [low, high].map((share) => Math.round(PERCENT * share));
  return `About ${from === to ? from : `${from}–${to}`}% accuracy, estimated from ${images} images`;
}
