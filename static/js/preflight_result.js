// The result of a preflight in the form.

import { element, notice } from './element.js';
import { bytes, number, shortDuration } from './format.js';
import { isolate } from './names.js';
import { loadedWeightsNote, showLoadedWeights } from './loaded_weights.js';

const TONES = { good: 'success', low: 'warning', high: 'warning', large: 'warning', long: 'warning', bad: 'danger' };

/** Shows the result of a preflight: {result, warnings, loaded_weights, batch_url, seconds}. */
export function showPreflight(region, answer) {
  region.replaceChildren(element('div', 'preflight', ...verdict(answer), ...details(answer)));
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
    Number.isFinite(seconds) && element('p', 'small muted', `Checked in ${seconds.toFixed(1)} s.`),
  ].filter(Boolean);
}

function weights(loaded) {
  const inside = element('div');
  showLoadedWeights(inside, loaded);
  return element('details', '', element('summary', '', `Initial weights: ${loadedWeightsNote(loaded)}`), inside);
}

// The text is scrolled by keyboard.
const printed = (text) => element('section', '', element('h3', 'small', 'Printed output'), element('pre', { class: 'printed', tabindex: 0 }, text));

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
