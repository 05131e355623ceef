// The page of a model's layers: choose an input, layers and an output, and show activations, weights and heat maps.

import { startEpochSlider } from './epoch_slider.js';
import { request } from './http.js';
import { startImageChoice } from './image_choice.js';
import { errorBox } from './trace.js';

const form = document.getElementById('inside');
const choice = document.getElementById('layer-choice');
const snapshot = document.getElementById('inside-snapshot');
const record = document.getElementById('inside-record');
const random = document.getElementById('random-record');
const images = form.querySelector('[data-image-choice]');
const [heatMap, layers] = [
  { url: form.dataset.heatMapUrl, area: document.getElementById('heat-map'), status: document.getElementById('heat-map-status'), asked: 0 },
  { url: form.action, area: document.getElementById('layer-results'), status: document.getElementById('layers-status'), asked: 0 },
];

/** Posts the form to the part's URL, and shows the answer in its area. */
const show = (part) => draw(part, { method: 'POST', body: new FormData(form) });

async function draw(part, options) {
  const number = (part.asked += 1);
  part.area.setAttribute('aria-busy', 'true');
  part.status.textContent = 'Computing…';
  try {
    const answer = await request(part.url, { ...options, headers: { 'X-Fragment': 'layers' } });
    const drawn = document.createElement('template');
    drawn.innerHTML = await answer.text();
    if (number !== part.asked) return;
    const note = drawn.content.querySelector('[data-note]');
    note.remove();
    for (const control of drawn.content.querySelectorAll('[data-opacity]')) control.hidden = false;
    part.area.replaceChildren(drawn.content);
    part.status.textContent = note.textContent;
  } catch (error) {
    if (number !== part.asked) return;
    part.status.textContent = '';
    part.area.replaceChildren(errorBox(error.body?.error?.message ? error.body.error : error));
  } finally {
    if (number === part.asked) part.area.removeAttribute('aria-busy');
  }
}

/** Shows the layers and outputs that can be chosen, and the heat map of the first input. */
async function load() {
  if (!snapshot.value) return;
  try {
    const answer = await request(`${form.dataset.layersUrl}?${new URLSearchParams({ snapshot_epoch: snapshot.value })}`, { headers: { Accept: 'text/html' } });
    choice.innerHTML = await answer.text();
  } catch (error) {
    choice.replaceChildren(errorBox(error.body?.error?.message ? error.body.error : error));
    return;
  }
  followMethod();
  if (record?.value) showAll();
}

function showAll() {
  if (choice.querySelector('[data-explain]')) show(heatMap);
  if (choice.querySelector('[name=layers]:checked')) show(layers);
}

function followMethod() {
  const method = form.elements.method?.value;
  for (const field of choice.querySelectorAll('[data-for]')) field.hidden = field.dataset.for !== method;
}

choice.addEventListener('click', ({ target }) => {
  if (target.dataset.select) for (const box of choice.querySelectorAll('[name=layers]')) box.checked = target.dataset.select === 'all';
  if (target.closest('[data-explain]')) show(heatMap);
});
choice.addEventListener('change', ({ target }) => {
  if (target.name === 'method') followMethod();
  if (['method', 'output', 'layer'].includes(target.name)) show(heatMap);
});
form.addEventListener('submit', (event) => {
  event.preventDefault();
  if (choice.querySelector('[name=layers]:checked')) show(layers);
  else layers.area.replaceChildren(errorBox({ message: 'No layers are selected.', hint: 'Select the layers to show.' }));
});
snapshot.addEventListener('change', showAll);
heatMap.area.addEventListener('input', ({ target }) => {
  if (target.closest('[data-opacity]')) heatMap.area.style.setProperty('--opacity', target.value / 100);
});

if (images) {
  startImageChoice(images, form.dataset.imageUrl);
  // The latest choice counts: an image or a record.
  images.addEventListener('change', ({ target }) => {
    if (!target.value) return;
    if (record) record.value = '';
    showAll();
  });
}
record?.addEventListener('change', () => {
  if (!record.value.trim()) return;
  forgetImage();
  showAll();
});
if (random) {
  random.hidden = false;
  random.addEventListener('click', () => {
    record.value = `${random.dataset.split}/${Math.floor(Math.random() * (Number(random.dataset.last) + 1))}`;
    forgetImage();
    showAll();
  });
}

function forgetImage() {
  if (!images) return;
  form.elements.image_file.value = '';
  form.elements.image_path.value = '';
  images.querySelector('.drop-image').hidden = true;
}

// The filters of the first convolution, one snapshot at a time.
const filters = { url: document.getElementById('filters-panel').dataset.url, area: document.getElementById('filters'), status: document.getElementById('filters-status'), asked: 0 };
document.getElementById('show-filters').addEventListener('click', async () => {
  await draw(filters, {});
  const area = filters.area.querySelector('[data-filters]');
  if (!area) return;
  startEpochSlider(area).focus();
});

load();
