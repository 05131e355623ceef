// Updates progress bars and status badges in place.

import { duration } from './format.js';

/** Sets the bar of a [data-meter] element; `percentage` is 0 to 100. */
export function setProgress(meter, percentage, etaSeconds = null) {
  if (!meter) return;
  const bar = meter.querySelector('.progress');
  bar.setAttribute('aria-valuenow', Math.round(percentage));
  bar.firstElementChild.style.setProperty('--value', percentage.toFixed(1));
  const words = meter.querySelector('[data-percent]');
  if (words) words.textContent = `${Math.round(percentage)}%`;
  const eta = meter.querySelector('[data-eta]');
  if (eta) eta.textContent = etaSeconds === null || etaSeconds === undefined ? '' : ` · ${eta.dataset.eta}${duration(etaSeconds)} left`;
}
