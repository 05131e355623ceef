// The result of a preflight: in the form, and later on the model's page.

import { element, notice, table } from './element.js';
import { bytes, number, shortDuration } from './format.js';
import { isolate } from './names.js';
import { loadedWeightsNote, showLoadedWeights } from './loaded_weights.js';

const TONES = { good: 'success', low: 'warning', high: 'warning', large: 'warning', long: 'warning', bad: 'danger' };

/** Shows the result of a preflight: {result, warnings, loaded_weights, batch_url, seconds}. */
export function showPreflight(region, answer) {
  region.replaceChildren(element('div', 'preflight', ...verdict(answer), ...details(answer)));
}

/** Shows the warnings of a preflight, then `actions`, and all else on request. */
export function showConcerns(region, answer, actions) {
  const all = element('details', 'disclosure', element('summary', '', 'Result of the check'), element('div', 'preflight', ...details(answer)));
  region.replaceChildren(element('div', 'preflight', ...verdict(answer), actions, all));
}

function verdict({ result, warnings = [] }) {
  const said = [];
  if (result.verdict) {
    const judged = notice(`tone-${TONES[result.verdict_level] ?? 'info'}`, element('p', '', [result.verdict, result.advice].filter(Boolean).join(' ')));
    judged.setAttribute('role', 'status');
    said.push(judged);
  }
  return [...said, ...warnings.map((text) => notice('tone-warning', text))];
}

function details({ result, batch_url: picture, loaded_weights: loaded, seconds }) {
  return [
    element('div', 'tiles', ...tilesOf(result).map(tile)),
    picture && pictureOf(picture, result.batch ?? []),
    loaded && weights(loaded),
    result.printed && printed(result.printed),
    result.layers && layersOf(result.layers),
    Number.isFinite(seconds) && element('p', 'small muted', `Checked in ${seconds.toFixed(1)} s.`),
  ].filter(Boolean);
}

function weights(loaded) {
  const inside = element('div');
  showLoadedWeights(inside, loaded);
  return element('details', 'disclosure', element('summary', '', `Initial weights: ${loadedWeightsNote(loaded)}`), inside);
}

// The text is scrolled by keyboard.
const printed = (text) => element('section', '', element('h3', 'small', 'Printed output'), element('pre', { class: 'printed', tabindex: 0 }, text));

// A layer whose output is mostly zeros passes little to the next one.
const DEAD = 0.95;
const NUMBERS = ['Min', 'Mean', 'Max', 'Zeros'];

/** A table of the layers' outputs in the last step, with the range of their values as a bar. */
function layersOf(layers) {
  const place = placesOf(layers);
  const numbers = NUMBERS.map((name) => element('th', { class: 'end', scope: 'col' }, name));
  const caption = element('caption', 'visually-hidden', 'Layer outputs in the last step');
  const rows = layers.map((layer) => layerRow(layer, place));
  return element('section', 'table-wrap', table('table table-tight', ['Layer', 'Output shape', 'Range', ...numbers], rows, caption));
}

function layerRow({ name, shape, min, mean, max, std, zero_fraction: zeros }, place) {
  const share = `${Math.round(100 * zeros)}%`;
  return element(
    'tr',
    '',
    element('th', { scope: 'row' }, name),
    element('td', 'nowrap', shape.join(' × ')),
    element('td', '', bar(place, min, max, mean - std, mean + std, mean)),
    ...[min, mean, max].map((value) => element('td', 'end', number(value))),
    element('td', 'end', zeros < DEAD ? share : element('span', 'badge tone-warning', share)),
  );
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
  const part = (name, start, end) => {
    const piece = element('span', name);
    piece.style.left = `${place(start)}%`;
    piece.style.width = `${place(end) - place(start)}%`;
    return piece;
  };
  const inside = (value) => Math.min(max, Math.max(min, value));
  const parts = [part('range-zero', 0, 0), part('range-all', min, max), part('range-most', inside(from), inside(to)), part('range-mean', mean, mean)];
  return element('div', { class: 'range', 'aria-hidden': true }, ...parts); // the numbers are beside it
}

/** The available facts as {label, value, note}. */
function tilesOf(result) {
  const { loss, cross_entropy: entropy, chance_loss: chance, seconds_per_step: step, seconds_per_epoch: epoch, seconds_total: total, images_per_second: speed } = result;
  const { memory_bytes: memory, gpu_memory_bytes: gpuMemory, memory_free_bytes: free, parameters, parameters_per_image: perImage, shape, input } = result;
  const notes = {
    // With regularization or additional losses, the loss exceeds the cross-entropy.
    loss: isKnown(chance) && [`chance level ${number(chance)}`, isDifferent(entropy, loss) && `loss ${number(loss)} with regularization`].filter(Boolean).join(', '),
    epoch: isKnown(step) && `${shortDuration(step)}/step`,
    total: isKnown(speed) && `${number(speed)} img/s`,
    memory: isKnown(gpuMemory) ? isKnown(memory) && `plus ${bytes(memory)} of system memory` : isKnown(free) && `${bytes(free)} free`,
  };
  return [
    { known: loss, label: isKnown(entropy) ? 'Initial cross-entropy' : 'Initial loss', value: () => number(entropy ?? loss), note: notes.loss },
    { known: epoch, label: 'Time per epoch', value: () => shortDuration(epoch), note: notes.epoch },
    { known: total, label: 'Estimated total time', value: () => shortDuration(total), note: notes.total },
    { known: gpuMemory ?? memory, label: isKnown(gpuMemory) ? 'GPU memory' : 'Memory', value: () => bytes(gpuMemory ?? memory), note: notes.memory },
    { known: parameters, label: 'Parameters', value: () => parameters.toLocaleString('en'), note: isKnown(perImage) && `${number(perImage)} per training image` },
    { known: shape, label: 'Input', value: () => shape.join(' × '), note: feeding(input) },
  ].filter(({ known }) => isKnown(known));
}

const isKnown = (value) => value !== null && value !== undefined;

const isDifferent = (entropy, loss) => isKnown(entropy) && Math.abs(entropy - loss) > 0.01 * Math.abs(loss);

function tile({ label, value, note }) {
  return element('div', 'tile', element('span', 'tile-label', label), element('span', 'tile-value', value()), note ? element('span', 'tile-note', note) : '');
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
  // Labels of which few repeat, such as numbers of boxes, are no summary.
  const isSummary = counts.size * 2 <= notes.length;
  const labels = isSummary ? [...counts].sort().map(([words, count]) => `${words} (${count})`).join(', ') : '';
  const image = element('img', { src: address, alt: 'Images of the first batch' });
  return element('figure', 'preflight-batch', image, element('figcaption', 'help', `First batch as the network receives it${labels && `: ${labels}`}.`));
}
