// What one real step says of a whole training: in the form, and later on the page of the model.

import { bytes, number, shortDuration } from './format.js';

const TONES = { good: 'success', low: 'warning', high: 'warning', bad: 'danger' };

/** Shows what the step has shown: {result, warnings, batch_url, seconds}. */
export function showPreflight(region, { result, warnings = [], batch_url: picture, seconds }) {
  const box = element('div', 'preflight');
  if (result.verdict) {
    const judged = notice(`tone-${TONES[result.verdict_kind] ?? 'info'}`, result.verdict);
    judged.setAttribute('role', 'status');
    box.append(judged);
  }
  for (const text of warnings) box.append(notice('tone-warning', text));
  const tiles = element('div', 'tiles');
  tiles.append(...tilesOf(result).map(tile));
  box.append(tiles);
  if (picture) box.append(pictureOf(picture, result.batch ?? []));
  if (Number.isFinite(seconds)) box.append(element('p', 'small muted', `Checked in ${seconds.toFixed(1)} s.`));
  region.replaceChildren(box);
}

/** What is known, as {label, value, note}. */
function tilesOf(result) {
  const { loss, chance_loss: chance, seconds_per_step: step, seconds_per_epoch: epoch, seconds_total: total, images_per_second: speed } = result;
  const { memory_bytes: memory, gpu_memory_bytes: gpuMemory, memory_free_bytes: free, parameters, shape, input } = result;
  const notes = {
    loss: isKnown(chance) && `guessing gives ${number(chance)}`,
    epoch: isKnown(step) && `${shortDuration(step)} a step`,
    total: isKnown(speed) && `${number(speed)} images a second`,
    memory: isKnown(gpuMemory) ? isKnown(memory) && `and ${bytes(memory)} of the machine` : isKnown(free) && `${bytes(free)} are free`,
  };
  return [
    { known: loss, label: 'Loss at the start', value: () => number(loss), note: notes.loss },
    { known: epoch, label: 'An epoch takes', value: () => shortDuration(epoch), note: notes.epoch },
    { known: total, label: 'All of it takes', value: () => shortDuration(total), note: notes.total },
    { known: gpuMemory ?? memory, label: isKnown(gpuMemory) ? 'Memory of the GPU' : 'Memory', value: () => bytes(gpuMemory ?? memory), note: notes.memory },
    { known: parameters, label: 'Parameters', value: () => parameters.toLocaleString('en') },
    { known: shape, label: 'Input', value: () => shape.join(' × '), note: feeding(input) },
  ].filter(({ known }) => isKnown(known));
}

const isKnown = (value) => value !== null && value !== undefined;

function tile({ label, value, note }) {
  const box = element('div', 'tile');
  box.append(element('span', 'tile-label', label), element('span', 'tile-value', value()));
  if (note) box.append(element('span', 'tile-note', note));
  return box;
}

const WAYS = { resident: 'kept in memory', streamed: 'read again for every batch' };

function feeding(input) {
  if (!input) return '';
  const why = [isKnown(input.bytes) && bytes(input.bytes), input.reason].filter(Boolean).join(', ');
  return [WAYS[input.how] ?? input.how, why].filter(Boolean).join(': ');
}

function pictureOf(address, notes) {
  const counts = new Map();
  for (const { label, other } of notes) {
    const words = other && other !== label ? `${label} with ${other}` : label;
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const labels = [...counts].sort().map(([words, count]) => `${words} (${count})`).join(', ');
  const figure = element('figure', 'preflight-batch');
  const image = new Image();
  image.src = address;
  image.alt = 'The images of the first batch';
  figure.append(image, element('figcaption', 'help', `The first batch as the network gets it${labels && `: ${labels}`}.`));
  return figure;
}

export function notice(tone, text) {
  const box = element('div', `notice ${tone}`);
  box.append(element('div', 'notice-body', text));
  return box;
}

export function element(tag, name, text = '') {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
