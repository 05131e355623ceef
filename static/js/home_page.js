// The home page: search and sort without a reload, and live rows.

import { settled } from './settled.js';
import { startSelection } from './job_selection.js';
import { join } from './live.js';
import { urlPrefix } from './http.js';
import { morphChildren } from './morph.js';
import { setProgress } from './progress.js';
import { drawPixelDigits } from './pixel_digits.js';
import { fragment, swapping } from './swap.js';

const TYPING_MILLISECONDS = 200;
const GATHER_MILLISECONDS = 150;
const RETRY_MILLISECONDS = 3000;

const box = document.getElementById('jobs');
const problem = document.getElementById('jobs-problem');
const selection = startSelection(box);
let state = new URLSearchParams(location.search);

const swap = swapping(box, (error) => {
  problem.querySelector('p').textContent = error.message;
  problem.hidden = false;
  refetchLater();
});
const refetchLater = settled(() => problem.hidden || refetch(), RETRY_MILLISECONDS);

function refetch() {
  const query = state.toString();
  return swap(
    (signal) => fragment(`${urlPrefix}/${query ? `?${query}` : ''}`, { signal, headers: { 'X-Fragment': 'jobs', Accept: 'text/html' } }),
    (fresh) => {
      morphChildren(box, fresh);
      drawPixelDigits(box);
      selection.show();
      problem.hidden = true;
    },
  );
}

const isPage = ([name]) => name.endsWith('_page');

/** Changes the search or sort order, and returns every list to its first page. */
function go(changes) {
  state = new URLSearchParams([...state].filter((argument) => !isPage(argument)));
  for (const [name, value] of Object.entries(changes)) {
    if (value) state.set(name, value);
    else state.delete(name);
  }
  history.replaceState(null, '', address());
  refetch();
}

function address() {
  const query = state.toString();
  return `${location.pathname}${query ? `?${query}` : ''}`;
}

/** Combines a burst of changes, such as ten aborted jobs, into one request. */
const refetchSoon = settled(refetch, GATHER_MILLISECONDS);
const search = () => go({ q: box.querySelector('#jobs-search').value.trim() });
const searchSoon = settled(search, TYPING_MILLISECONDS);

box.addEventListener('input', (event) => {
  if (event.target.id === 'jobs-search') searchSoon();
});
box.addEventListener('submit', (event) => {
  if (event.target.id !== 'jobs-form') return;
  event.preventDefault();
  search();
});
box.addEventListener('click', (event) => {
  const link = event.target.closest('[data-sort], .pager a');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { searchParams } = new URL(link.href);
  if (link.closest('.pager')) turnTo(link, searchParams);
  else go({ sort: searchParams.get('sort'), dir: searchParams.get('dir') });
});

/** Shows another page of a list and scrolls to its top. Keeps focus on the link, or moves it to the current page's link. */
async function turnTo(link, searchParams) {
  const { id } = link.closest('section');
  // The link may be older than the latest search or order.
  state = new URLSearchParams([...[...state].filter((argument) => !isPage(argument)), ...[...searchParams].filter(isPage)]);
  history.pushState(null, '', address());
  await refetch();
  const section = document.getElementById(id);
  if (!link.isConnected) section?.querySelector('.pager [aria-current]')?.focus({ preventScroll: true });
  section?.scrollIntoView();
}
window.addEventListener('popstate', () => {
  state = new URLSearchParams(location.search);
  refetch();
});

const places = (id) => box.querySelectorAll(`[data-job="${CSS.escape(id)}"]`);

const patches = {
  progress(place, message) {
    const meter = place.querySelector('[data-meter]');
    if (meter) setProgress(meter, message.percentage, message.eta_seconds);
  },
  sparkline(place, { line, label }) {
    const sparkline = place.querySelector('[data-sparkline]');
    if (!sparkline || !line) return;
    const [area, curve] = sparkline.children;
    sparkline.setAttribute('aria-label', label);
    area.setAttribute('d', `${line}L100 28L0 28Z`);
    curve.setAttribute('d', line);
  },
};

function receive({ detail: message }) {
  const patch = patches[message.update];
  if (patch) {
    for (const place of places(message.job_id)) patch(place, message);
  } else if (['deleted', 'status', 'attribute', 'added'].includes(message.update)) {
    if (message.update === 'deleted') selection.forget(message.job_id);
    refetchInTurn(message.spread ?? 0);
  }
}

let turn = null;

/** Refetches at a random moment of the next `spread` seconds, so that a crowd does not do so at once. */
function refetchInTurn(spread) {
  if (!spread) refetchSoon();
  else turn ??= setTimeout(() => { turn = null; refetch(); }, Math.random() * spread * 1000);
}

document.addEventListener('job-update', receive);
document.addEventListener('task-update', receive);
document.addEventListener('live-joined', ({ detail }) => detail.missed && refetchSoon());
document.addEventListener('job-action', refetchSoon);
drawPixelDigits(box);
// What was typed before this script was loaded.
const typed = document.getElementById('jobs-search');
if (typed && typed.value !== typed.defaultValue) search();
join('job_management');
