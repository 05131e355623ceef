// Keeps relative times such as "3 min ago" up to date.

import { ago } from './format.js';

function refresh() {
  for (const element of document.querySelectorAll('time[datetime]')) {
    const at = Date.parse(element.dateTime) / 1000;
    if (Number.isFinite(at)) element.textContent = ago(at);
  }
}

export function startTimes() {
  setInterval(() => {
    if (!document.hidden) refresh();
  }, 20_000);
}
