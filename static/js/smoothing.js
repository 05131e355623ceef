// Smooths curves by an exponential moving average, as TensorBoard does.

import { store, stored } from './storage.js';

/**
 * The moving average of `values`, which may contain null. `weight`, 0 to 1 (exclusive), is that of the previous
 * average. The average starts without bias: early values are divided by the sum of their weights (Kingma and Ba,
 * Adam, 2015, section 3).
 */
export function smoothed(values, weight) {
  let sum = 0;
  let remaining = 1;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    remaining *= weight;
    return sum / (1 - remaining);
  });
}

const KEY = 'smoothing';

/** Starts the slider. It is shared by all charts and remembered; charts receive `smoothing-changed` events. */
export function startSmoothing(slider) {
  const words = slider.closest('label').querySelector('output');
  const show = () => {
    words.textContent = slider.value === '0' ? 'off' : `${slider.value}%`;
    slider.setAttribute('aria-valuetext', words.textContent);
  };
  slider.value = stored('localStorage', KEY) ?? slider.value;
  show();
  slider.addEventListener('input', () => {
    show();
    store('localStorage', KEY, slider.value);
    document.dispatchEvent(new CustomEvent('smoothing-changed', { detail: slider.valueAsNumber / 100 }));
  });
  return slider.valueAsNumber / 100;
}
