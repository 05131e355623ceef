// The page of a dataset: counts and skipped images as they are found.

import { element, scrolling } from './element.js';
import { startViewer } from './image_viewer.js';
import { startJobPage } from './job_page.js';
import { clipped } from './names.js';
import { refreshParts } from './refresh.js';

const SPLITS = [['train', 'Training'], ['val', 'Validation'], ['test', 'Test']];
const job = startJobPage();
startViewer(document.getElementById('viewer'), document.querySelector('main'));

const counts = document.getElementById('counts');
const drawKnownCounts = () => drawCounts(JSON.parse(document.getElementById('counts-data').textContent));
drawKnownCounts();

document.addEventListener('task-update', ({ detail: message }) => {
  if (message.job_id !== job.id) return;
  if (message.update === 'counts') drawCounts(message.splits);
  if (message.update === 'skipped') showSkipped(message);
});
document.addEventListener('parts-refreshed', () => {
  drawKnownCounts();
  if (document.getElementById('skipped').childElementCount) document.getElementById('skipped-live').hidden = true;
});
document.addEventListener('job-update', ({ detail }) => {
  if (detail.update === 'status' && detail.job_id !== job.id) refreshParts();
});

/** One row for each group; a bar has a part for each split. `splits`: {name: {labels, counts}}. */
function drawCounts(splits) {
  const present = SPLITS.filter(([name]) => splits[name]?.labels?.length);
  document.getElementById('counts-empty').hidden = present.length > 0;
  if (!present.length) return;
  const labels = [...new Set(present.flatMap(([name]) => splits[name].labels))];
  const rows = labels.map((label) => ({
    label,
    parts: present.map(([name, title]) => ({ name, title, count: splits[name].counts[splits[name].labels.indexOf(label)] ?? 0 })),
  }));
  const most = Math.max(1, ...rows.map((row) => total(row)));

  const title = document.getElementById('counts-title').textContent;
  const table = element('table', 'counts-table', element('caption', 'visually-hidden', title), element('tbody', '', ...rows.map((row) => countRow(row, most))));
  const scroll = rows.length > 20 ? scrolling('scroll', `${title} table`, table) : element('div', '', table);
  counts.replaceChildren(scroll);
  drawLegend(present, rows);
}

function total(row) {
  return row.parts.reduce((sum, part) => sum + part.count, 0);
}

function countRow(row, most) {
  const words = ({ title, count }) => `${title}: ${count.toLocaleString('en')}`;
  const pieces = row.parts
    .filter(({ count }) => count > 0)
    .map((part) => element('span', { class: `count-part split-color-${part.name}`, title: words(part), '--value': (100 * part.count) / most }));
  return element(
    'tr',
    '',
    element('th', { scope: 'row' }, clipped(row.label)),
    element('td', '', element('div', { class: 'count-bar', 'aria-hidden': true }, ...pieces)),
    element('td', { class: 'end', title: row.parts.map(words).join(', ') }, total(row).toLocaleString('en')),
  );
}

function drawLegend(present, rows) {
  const legend = document.getElementById('counts-legend');
  legend.replaceChildren(
    ...present.map(([name, title], index) => {
      const item = element('li', '', element('span', `swatch swatch-box split-color-${name}`), title);
      if ('overlap' in legend.dataset) return item; // the sum of the rows is not the number of images
      const sum = rows.reduce((all, row) => all + row.parts[index].count, 0);
      item.append(' ', element('b', '', sum.toLocaleString('en')));
      return item;
    }),
  );
}

function showSkipped({ count, last = [] }) {
  const panel = document.getElementById('skipped-live');
  panel.hidden = count === 0;
  panel.querySelector('[data-count]').textContent = count.toLocaleString('en');
  panel.querySelector('ul').replaceChildren(
    ...last.map(({ path, reason }) => element('li', 'break', element('code', '', element('bdi', { dir: 'ltr' }, path)), ` ${reason}`)),
  );
}
