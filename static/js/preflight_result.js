// The result of a preflight: in the form, and later on the model's page.

import { element, notice } from './element.js';
import { bytes, number, shortDuration } from './format.js';
import { isolate } from './names.js';
import { loadedWeightsNote, showLoadedWeights } from './loaded_weights.js';

const TONES = { good: 'success', low: 'warning', high: 'warning', large: 'warning', bad: 'danger' };

/** Shows the result of a preflight: {result, warnings, loaded_weights, batch_url, seconds}. */
export function showPreflight(region, { result, warnings = [], batch_url: picture, loaded_weights: loaded, seconds }) {
  const box = element('div', 'preflight');
  if (result.verdict) {
    const judged = notice(`tone-${TONES[result.verdict_level] ?? 'info'}`, result.verdict);
    judged.setAttribute('role', 'status');
    box.append(judged);
  }
  if (result.suggestion) box.append(suggestionOf(result.suggestion));
  for (const text of warnings) box.append(notice('tone-warning', text));
  const tiles = element('div', 'tiles');
  tiles.append(...tilesOf(result).map(tile));
  box.append(tiles);
  if (picture) box.append(pictureOf(picture, result.batch ?? []));
  if (loaded) box.append(weights(loaded));
  if (result.printed) box.append(printed(result.printed));
  if (result.layers) box.append(layersOf(result.layers));
  if (Number.isFinite(seconds)) box.append(element('p', 'small muted', `Checked in ${seconds.toFixed(1)} s.`));
  region.replaceChildren(box);
}

/** A notice with a button that applies Fine-tune, in the form only. */
function suggestionOf(text) {
  const box = notice('tone-info', text);
  const choose = document.getElementById('use-fine-tune');
  if (choose) {
    const button = element('button', 'button button-small', 'Fine-tune instead');
    button.type = 'button';
    button.addEventListener('click', () => choose.click());
    box.append(button);
  }
  return box;
}

function weights(loaded) {
  const box = element('details', 'disclosure');
  const inside = element('div', '');
  showLoadedWeights(inside, loaded);
  box.append(element('summary', '', `Initial weights: ${loadedWeightsNote(loaded)}`), inside);
  return box;
}

function printed(text) {
  const box = element('section', '');
  const lines = element('pre', 'printed', text);
  lines.tabIndex = 0; // to scroll by keyboard
  box.append(element('h3', 'small', 'Printed output'), lines);
  return box;
}

// A layer whose output is mostly zeros passes little to the next one.
const DEAD = 0.95;
const NUMBERS = ['Min', 'Mean', 'Max', 'Zeros'];

/** A table of the layers' outputs in the last step, with the range of their values as a bar. */
function layersOf(layers) {
  const box = element('section', 'table-wrap');
  const table = element('table', 'table table-tight');
  table.append(element('caption', 'visually-hidden', 'Layer outputs in the last step'));
  const head = table.createTHead().insertRow();
  for (const name of ['Layer', 'Output shape', 'Range', ...NUMBERS]) {
    const cell = element('th', NUMBERS.includes(name) ? 'end' : '', name);
    cell.scope = 'col';
    head.append(cell);
  }
  const place = placesOf(layers);
  table.createTBody().append(...layers.map((layer) => layerRow(layer, place)));
  box.append(table);
  return box;
}

function layerRow({ name, shape, min, mean, max, std, zero_fraction: zeros }, place) {
  const row = element('tr', '');
  const title = element('th', '', name);
  title.scope = 'row';
  const range = element('td', '');
  range.append(bar(place, min, max, mean - std, mean + std, mean));
  row.append(title, element('td', 'nowrap', shape.join(' × ')), range);
  for (const value of [min, mean, max]) row.append(element('td', 'end', number(value)));
  const share = `${Math.round(100 * zeros)}%`;
  const cell = element('td', 'end', zeros < DEAD ? share : '');
  if (zeros >= DEAD) cell.append(element('span', 'badge tone-warning', share));
  row.append(cell);
  return row;
}

/** Returns a function from a number to its position, 0 to 100, on a scale for all layers that is linear only near zero. */
function placesOf(layers) {
  const spreads = layers.map(({ std }) => std).sort((one, other) => one - other);
  const unit = spreads[spreads.length >> 1] || 1;
  const scaled = (value) => Math.asinh(value / unit);
  const low = Math.min(0, ...layers.map(({ min }) => scaled(min)));
  const high = Math.max(0, ...layers.map(({ max }) => scaled(max)));
  return (value) => (100 * (scaled(value) - low)) / (high - low || 1);
}

function bar(place, min, max, from, to, mean) {
  const box = element('div', 'range');
  box.setAttribute('aria-hidden', 'true'); // the numbers are beside it
  const part = (name, start, end) => {
    const piece = element('span', name);
    piece.style.left = `${place(start)}%`;
    piece.style.width = `${place(end) - place(start)}%`;
    return piece;
  };
  const inside = (value) => Math.min(max, Math.max(min, value));
  box.append(part('range-zero', 0, 0), part('range-all', min, max), part('range-most', inside(from), inside(to)), part('range-mean', mean, mean));
  return box;
}

/** The available facts as {label, value, note}. */
function tilesOf(result) {
  const { loss, cross_entropy: entropy, chance_loss: chance, seconds_per_step: step, seconds_per_epoch: epoch, seconds_total: total, images_per_second: speed } = result;
  const { memory_bytes: memory, gpu_memory_bytes: gpuMemory, memory_free_bytes: free, parameters, parameters_per_image: perImage, shape, input } = result;
  const notes = {
    loss: isKnown(chance) && [isDifferent(entropy, loss) && `cross-entropy ${number(entropy)}`, `chance level ${number(chance)}`].filter(Boolean).join(', '),
    epoch: isKnown(step) && `${shortDuration(step)}/step`,
    total: isKnown(speed) && `${number(speed)} img/s`,
    memory: isKnown(gpuMemory) ? isKnown(memory) && `plus ${bytes(memory)} of system memory` : isKnown(free) && `${bytes(free)} free`,
  };
  return [
    { known: loss, label: 'Initial loss', value: () => number(loss), note: notes.loss },
    { known: epoch, label: 'Time per epoch', value: () => shortDuration(epoch), note: notes.epoch },
    { known: total, label: 'Estimated total time', value: () => shortDuration(total), note: notes.total },
    { known: gpuMemory ?? memory, label: isKnown(gpuMemory) ? 'GPU memory' : 'Memory', value: () => bytes(gpuMemory ?? memory), note: notes.memory },
    { known: parameters, label: 'Parameters', value: () => parameters.toLocaleString('en'), note: isKnown(perImage) && `${number(perImage)} per training image` },
    { known: shape, label: 'Input', value: () => shape.join(' × '), note: feeding(input) },
  ].filter(({ known }) => isKnown(known));
}

const isKnown = (value) => value !== null && value !== undefined;

// With regularization or additional losses, the loss exceeds the cross-entropy.
const isDifferent = (entropy, loss) => isKnown(entropy) && Math.abs(entropy - loss) > 0.01 * Math.abs(loss);

function tile({ label, value, note }) {
  const box = element('div', 'tile');
  box.append(element('span', 'tile-label', label), element('span', 'tile-value', value()));
  if (note) box.append(element('span', 'tile-note', note));
  return box;
}

const WAYS = { resident: 'Cached in memory', streamed: 'Streamed from disk' };

function feeding(input) {
  if (!input) return '';
  const why = [isKnown(input.bytes) && bytes(input.bytes), input.reason].filter(Boolean).join(', ');
  return [WAYS[input.how] ?? input.how, why].filter(Boolean).join(': ');
}

function pictureOf(address, notes) {
  const counts = new Map();
  for (const { label, other } of notes) {
    const words = other && other !== label ? `${isolate(label)} with ${isolate(other)}` : isolate(label);
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const labels = [...counts].sort().map(([words, count]) => `${words} (${count})`).join(', ');
  const figure = element('figure', 'preflight-batch');
  const image = new Image();
  image.src = address;
  image.alt = 'Images of the first batch';
  figure.append(image, element('figcaption', 'help', `First batch as the network receives it${labels && `: ${labels}`}.`));
  return figure;
}
