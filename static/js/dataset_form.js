// The form of a new dataset: a bar for the split, and an example image resized with the form's settings.

import { startCreatingJob } from './create_job.js';
import { element } from './element.js';
import { bytes } from './format.js';
import { startFormMemory } from './form_memory.js';
import { settled, startReveals, startSuggestedName, startVariants } from './form_parts.js';
import { postForm, urlPrefix } from './http.js';
import { startSourceSummary } from './source_summary.js';
import { swapping } from './swap.js';
import { startUploadFields } from './upload_field.js';

const form = document.getElementById('dataset-form');
const field = (name) => form.elements[name];
const ROOM_FOR_TITLE_PIXELS = 116;
const PREVIEW_FIELDS = ['resize_width', 'resize_height', 'resize_channels', 'resize_mode', 'encoding'];

const memory = startFormMemory(form);
startReveals(form);
startVariants(form, field('method'), 'method');
startTextFiles();
startCloudStorage();
const job = startCreatingJob(form, { memory });
form.addEventListener('submit', (event) => {
  event.preventDefault();
  job.send();
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

function drawSplit() {
  const bar = document.getElementById('split-bar');
  if (!bar) return;
  const { valShare, testShare, valSource, testSource } = bar.dataset;
  const isSeparate = (names) => names.split(' ').some((name) => isGiven(field(name)));
  const own = { val: isSeparate(valSource), test: isSeparate(testSource) };
  const val = own.val ? 0 : percentOf(valShare);
  const test = own.test ? 0 : percentOf(testShare);
  const parts = { train: Math.max(0, 100 - val - test), val, test };
  const titles = { train: 'Training', val: 'Validation', test: 'Test' };
  for (const [name, share] of Object.entries(parts)) {
    const part = bar.querySelector(`[data-part="${name}"]`);
    part.style.setProperty('--value', share);
    part.hidden = share === 0;
    part.firstElementChild.textContent = (bar.clientWidth * share) / 100 > ROOM_FOR_TITLE_PIXELS ? `${titles[name]} ${share}%` : `${share}%`;
  }
  bar.setAttribute('aria-label', `Split: ${Object.entries(parts).map(([name, share]) => `${titles[name]} ${share}%`).join(', ')}`);
  field(valShare).disabled = own.val;
  field(testShare).disabled = own.test;
  const taken = val + test;
  bar.classList.toggle('split-full', taken >= 100);
  document.getElementById('split-problem').textContent = taken >= 100 ? `Validation and test take ${taken}%: nothing is left to train on.` : '';
}

/* The example image ---------------------------------------------------- */

const preview = document.getElementById('resize-preview');
const frame = preview?.querySelector('.resize-frame');
const caption = preview?.querySelector('[data-caption]');
let example = ''; // the path of an image of the source

const swap = swapping(frame, (error) => (caption.textContent = error.message));

function drawExample() {
  if (!preview) return; // the source does not contain images
  const shown = example;
  const fields = new FormData();
  const all = new FormData(form);
  for (const name of PREVIEW_FIELDS) fields.set(name, all.get(name) ?? '');
  if (shown) fields.set('example', shown);
  swap(
    (signal) => postForm(`${urlPrefix}/datasets/images/resize-example`, fields, { signal }),
    (answer) => {
      const [width, height] = [Number(field('resize_width').value), Number(field('resize_height').value)];
      frame.replaceChildren(picture(answer.image, width, height));
      caption.replaceChildren(`${width} × ${height} pixels, about ${bytes(answer.bytes)} per image.`);
      if (shown) caption.prepend(element('bdi', 'break', shown.split('/').slice(-2).join('/')), ': ');
    },
  );
}

function picture(source, width, height) {
  const image = new Image();
  image.src = source;
  image.alt = example ? 'An image of the source, resized' : 'Sample image, resized';
  // Scale small images by integers, so that single pixels are visible.
  const scale = Math.max(1, Math.floor(192 / Math.max(width, height)));
  image.style.width = `${width * scale}px`;
  image.style.height = 'auto';
  if (scale > 1) image.className = 'pixelated';
  return image;
}

const drawExampleSoon = settled(drawExample, 200);

function markPreset() {
  if (!preview) return;
  for (const button of form.querySelectorAll('[data-size]')) {
    const chosen = [field('resize_width').value, field('resize_height').value].every((value) => value === button.dataset.size);
    button.setAttribute('aria-pressed', String(chosen));
  }
}

for (const button of form.querySelectorAll('[data-size]')) {
  button.addEventListener('click', () => {
    field('resize_width').value = field('resize_height').value = button.dataset.size;
    markPreset();
    suggest();
    drawExample();
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
  if (!last || !preview) return last ?? '';
  return `${last}, ${field('resize_width').value}×${field('resize_height').value}`;
});

form.addEventListener('input', (event) => {
  drawSplit();
  if (PREVIEW_FIELDS.includes(event.target.name)) {
    markPreset();
    drawExampleSoon();
  }
  suggest();
});
form.addEventListener('change', () => {
  drawSplit();
  suggest();
});

drawSplit();
markPreset();
drawExample();
startSourceSummary(form, (path) => {
  if (path === example) return;
  example = path;
  drawExampleSoon();
});
startUploadFields(form);
