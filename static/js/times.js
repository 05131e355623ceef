// Keeps relative times such as "3 minutes ago" and "in 3 minutes" up to date.

import { ago, ahead } from './format.js';

function refresh() {
  for (const element of document.querySelectorAll('time[datetime]')) {
    const at = Date.parse(element.dateTime) / 1000;
    if (Number.isFinite(at)) element.textContent = 'ahead' in element.dataset ? ahead(at) : ago(at);
  }
}

export function startTimes() {
  setInterval(() => {
    if (!document.hidden) refresh();
  }, 20_000);
}
