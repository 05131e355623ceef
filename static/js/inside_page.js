// The page of a model's layers: choose an input, layers and an output, and show activations, weights and heat maps.

import { startEpochSlider } from './epoch_slider.js';
import { startImageChoice } from './image_choice.js';
import { fragment, swapping } from './swap.js';
import { errorBox } from './error_box.js';

const form = document.getElementById('inside');
const choice = document.getElementById('layer-choice');
const snapshot = document.getElementById('inside-snapshot');
const record = document.getElementById('inside-record');
const random = document.getElementById('random-record');
const images = form.querySelector('[data-image-choice]');
const [heatMap, layers] = [partOf(form.dataset.heatMapUrl, 'heat-map', 'heat-map-status'), partOf(form.action, 'layer-results', 'layers-status')];
const predictionPanel = document.getElementById('prediction-panel');
const prediction = partOf(predictionPanel.dataset.url, 'inside-prediction', 'prediction-status');
const swapChoice = swapping(choice);

/** The part of the page that shows in the element `id` what `url` answers. */
function partOf(url, id, statusId) {
  const [area, status] = [document.getElementById(id), document.getElementById(statusId)];
  const fail = (error) => {
    status.textContent = '';
    area.replaceChildren(errorBox(error));
  };
  return { url, area, status, swap: swapping(area, fail) };
}

/** Posts the form to the part's URL, and shows the answer in its area. */
const show = (part) => draw(part, { method: 'POST', body: new FormData(form) });

function showPrediction() {
  const fields = new FormData();
  fields.set('job_id', predictionPanel.dataset.job);
  for (const [name, value] of new FormData(form)) if (!['layers', 'method', 'output', 'layer'].includes(name)) fields.append(name, value);
  draw(prediction, { method: 'POST', body: fields }, 'prediction');
}

function draw({ url, area, status, swap }, options, part = 'layers') {
  status.textContent = 'Computing…';
  return swap(
    (signal) => fragment(url, { ...options, signal, headers: { 'X-Fragment': part } }),
    (drawn) => {
      const note = drawn.querySelector('[data-note]');
      note.remove();
      for (const control of drawn.querySelectorAll('[data-opacity]')) control.hidden = false;
      area.replaceChildren(drawn);
      status.textContent = note.textContent;
    },
  );
}

/** Shows the layers and outputs that can be chosen, and the heat map of the first input. */
function load() {
  if (!snapshot.value) return;
  const url = `${form.dataset.layersUrl}?${new URLSearchParams({ snapshot_epoch: snapshot.value })}`;
  swapChoice(
    (signal) => fragment(url, { signal }),
    (drawn) => {
      choice.replaceChildren(drawn);
      followMethod();
      if (record?.value) showAll();
    },
  );
}

function showAll() {
  showPrediction();
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
const filters = partOf(document.getElementById('filters-panel').dataset.url, 'filters', 'filters-status');
document.getElementById('show-filters').addEventListener('click', async () => {
  await draw(filters, {});
  const area = filters.area.querySelector('[data-filters]');
  if (!area) return;
  startEpochSlider(area).focus();
});

load();
