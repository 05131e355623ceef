// The form for a new version: describes the pending changes that it contains, and the splits that result.

import { describeEdits } from './record_edits.js';
import { countsAfter } from './version_counts.js';

const form = document.getElementById('version-form');
const button = form.querySelector('[type="submit"]');
const status = document.getElementById('create-status');
const result = document.getElementById('version-result');
const { value } = document.getElementById('edits');
// Changes that are too many for the form are described by the server.
const described = JSON.parse(form.dataset.described);
const edits = value && !described.words ? JSON.parse(value) : {};
const words = described.words ?? describeEdits(edits);
const counts = JSON.parse(form.dataset.counts);
const inherited = JSON.parse(form.dataset.inherited);
const TITLES = { train: 'training', val: 'validation', test: 'test' };

if (words) document.getElementById('changes').textContent = `${words}.`;

const numberOf = (name) => (form.elements[name].value.trim() === '' ? null : Number(form.elements[name].value));
const describe = (numbers) =>
  Object.keys(TITLES)
    .filter((split) => numbers[split])
    .map((split) => `${numbers[split].toLocaleString('en')} ${TITLES[split]}`)
    .join(', ');

function draw() {
  const settings = { keep: numberOf('keep') ?? 100, val: numberOf('pct_val'), test: numberOf('pct_test') };
  const after = countsAfter(described.counts ?? counts, edits, settings);
  const isEstimated = settings.keep < 100 || settings.val !== null || settings.test !== null;
  const [before, left] = [describe(counts), `${isEstimated ? 'about ' : ''}${describe(after) || 'none'}`];
  result.textContent = `Images: ${before}${left === before ? '' : ` → ${left}`}.`;
  const isChanged = words || isEstimated || Object.entries(inherited).some(([name, usual]) => form.elements[name].value !== String(usual));
  if (isChanged) button.removeAttribute('aria-disabled');
  else button.setAttribute('aria-disabled', 'true');
  status.textContent = isChanged ? '' : 'Nothing is changed yet.';
}

for (const type of ['input', 'change']) form.addEventListener(type, draw);
form.addEventListener('submit', (event) => {
  if (button.hasAttribute('aria-disabled')) return event.preventDefault();
  button.setAttribute('aria-busy', 'true');
});
draw();
