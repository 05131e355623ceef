// The form of a new dataset: its split, the state of its folded panels, and what was found in its source.

import { startComputeTarget } from './compute_target.js';
import { startCreatingJob } from './create_job.js';
import { startFormMemory } from './form_memory.js';
import { startSections } from './form_sections.js';
import { startReveals, startSuggestedName, startVariants } from './form_parts.js';
import { startSourceSummary } from './source_summary.js';
import { startUploadFields } from './upload_field.js';

const form = document.getElementById('dataset-form');
const field = (name) => form.elements[name];
const ROOM_FOR_TITLE_PIXELS = 116;
const hasImages = Boolean(document.getElementById('image-panel'));
let shown = null; // the latest summary of the source

const memory = startFormMemory(form);
startReveals(form);
startSections(form);
startVariants(form, field('method'), 'method');
startComputeTarget(form);
startTextFiles();
startCloudStorage();
const job = startCreatingJob(form, { memory });
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  job.busy('Reading the source…');
  await source.ready(); // it may stop the button
  job.free();
  job.send();
});
// Enter loads the preview, and never creates a dataset.
form.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.defaultPrevented || !event.target.matches('input')) return;
  event.preventDefault();
  source.load();
});

// Text files are either all on the server or all uploaded.
function startTextFiles() {
  const box = field('textfile_use_local_files');
  const show = () => {
    for (const part of form.querySelectorAll('[data-local]')) part.hidden = !box.checked;
    for (const part of form.querySelectorAll('[data-uploaded]')) part.hidden = box.checked;
  };
  box?.addEventListener('change', show);
  if (box) show();
}

// Cloud storage needs the endpoint and the keys: expand their section.
function startCloudStorage() {
  const details = document.getElementById('remote-storage');
  form.addEventListener('change', ({ target }) => {
    if (details && target.name === 'method' && target.value === 's3') details.open = true;
  });
}

/* The split ------------------------------------------------------------ */

const percentOf = (name) => Math.min(100, Math.max(0, Number(field(name).value) || 0));

// A split has a separate source if a box is ticked or a path is entered.
const isGiven = (control) => Boolean(control && !control.closest('[hidden]') && (control.type === 'checkbox' ? control.checked : control.value.trim()));

const SPLIT_TITLES = { train: 'training', val: 'validation', test: 'test' };

function drawSplit() {
  const bar = document.getElementById('split-bar');
  if (!bar) return;
  const { valShare, testShare, valSource, testSource } = bar.dataset;
  const declared = shown?.splits ?? {};
  const isSeparate = (names) => names.split(' ').some((name) => isGiven(field(name)));
  const own = { val: 'val' in declared || isSeparate(valSource), test: 'test' in declared || isSeparate(testSource) };
  const shares = { val: own.val ? 0 : percentOf(valShare), test: own.test ? 0 : percentOf(testShare) };
  const taken = shares.val + shares.test;
  // The numbers of images if they are known; those of separate sources of the fields are not.
  const isCounted = Boolean(shown?.total) && Object.keys(own).every((split) => !own[split] || split in declared);
  const divided = isCounted ? (declared.train ?? shown.total) : 100;
  const parts = { val: 0, test: 0 };
  for (const split of Object.keys(parts)) parts[split] = isCounted && split in declared ? declared[split] : Math.round((divided * shares[split]) / 100);
  parts.train = Math.max(0, divided - (own.val ? 0 : parts.val) - (own.test ? 0 : parts.test));
  const total = Math.max(1, parts.train + parts.val + parts.test);
  const words = (split) => (isCounted ? `${parts[split].toLocaleString('en')} ${SPLIT_TITLES[split]}` : `${parts[split]}% ${SPLIT_TITLES[split]}`);
  for (const split of ['train', 'val', 'test']) {
    const part = bar.querySelector(`[data-part="${split}"]`);
    const share = (100 * parts[split]) / total;
    part.style.setProperty('--value', share);
    part.hidden = parts[split] === 0;
    part.firstElementChild.textContent = (bar.clientWidth * share) / 100 > ROOM_FOR_TITLE_PIXELS ? words(split) : words(split).split(' ')[0];
  }
  const used = ['train', 'val', 'test'].filter((split) => parts[split]).map(words);
  const separate = ['val', 'test'].filter((split) => own[split] && !(split in declared)).map((split) => `separate ${SPLIT_TITLES[split]}`);
  const isWhole = Object.keys(declared).length > 0 && taken === 0;
  const state = [...used, ...separate].join(', ');
  bar.setAttribute('aria-label', `Split: ${state}`);
  stateOf('split-panel', `${isCounted && !isWhole ? 'About ' : ''}${state}${isWhole ? ', as in the source' : ''}`);
  field(valShare).disabled = own.val;
  field(testShare).disabled = own.test;
  const note = document.getElementById('split-declared');
  note.hidden = Object.keys(declared).length === 0;
  note.textContent = isWhole ? 'The source divides its images into these splits.' : 'The source divides its images; a percentage is taken from its training images.';
  bar.classList.toggle('split-full', taken >= 100);
  document.getElementById('split-problem').textContent = taken >= 100 ? `Validation and test take ${taken}%: nothing is left to train on.` : '';
}

/** Shows the settings of a folded panel in its summary line. */
function stateOf(panel, words) {
  document.getElementById(panel).querySelector('[data-state]').textContent = words;
}

/* The images ----------------------------------------------------------- */

function drawImages() {
  if (!hasImages) return;
  const [width, height] = [field('resize_width').value, field('resize_height').value];
  const [mode] = field('resize_mode').selectedOptions;
  const color = field('resize_channels').value === '1' ? 'Grayscale' : 'Color';
  stateOf('image-panel', [`${width}×${height}`, mode?.textContent, color].filter(Boolean).join(', '));
  for (const button of form.querySelectorAll('[data-size]')) {
    button.setAttribute('aria-pressed', String(width === button.dataset.size && height === button.dataset.size));
  }
}

for (const button of form.querySelectorAll('[data-size]')) {
  button.addEventListener('click', () => {
    for (const name of ['resize_width', 'resize_height']) {
      field(name).value = button.dataset.size;
      field(name).dispatchEvent(new Event('input', { bubbles: true }));
    }
  });
}

/* Paths and the name --------------------------------------------------- */

for (const button of form.querySelectorAll('[data-fill]')) {
  button.addEventListener('click', () => {
    const input = document.getElementById(button.dataset.fill);
    input.value = `${button.dataset.value.replace(/\/$/, '')}/`;
    input.focus();
  });
}

const suggest = startSuggestedName(field('dataset_name'), () => {
  const path = [...form.querySelectorAll('[data-path]')].find((control) => !control.closest('[hidden]'));
  const parts = (path?.value ?? '').replace(/\.(\w{1,4}|tfrecords?)$/, '').split('/').filter(Boolean);
  const isCommon = ['train', 'training', 'images', 'labels'].includes(parts.at(-1)) || /[*?[]/.test(parts.at(-1));
  const last = isCommon ? parts.at(-2) : parts.at(-1);
  if (!last || !hasImages || !shown?.total) return last ?? ''; // until then, the size may change
  return `${last}, ${field('resize_width').value}×${field('resize_height').value}`;
});

function draw() {
  drawSplit();
  drawImages();
  suggest();
}

for (const type of ['input', 'change']) form.addEventListener(type, draw);

// The list of further kinds closes like a menu.
const kinds = document.querySelector('.kind-more');
document.addEventListener('click', ({ target }) => {
  if (kinds && !kinds.contains(target)) kinds.open = false;
});
kinds?.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  kinds.open = false;
  kinds.querySelector('summary').focus();
});

const source = startSourceSummary(form, {
  block: (reason) => job.block(reason),
  changed(summary) {
    shown = summary;
    // What was found now replaces why an earlier attempt failed.
    if (summary?.finished && (summary.problems.length || Object.keys(summary.errors).length)) document.getElementById('earlier-failure')?.remove();
    draw();
  },
});
draw();
startUploadFields(form);
