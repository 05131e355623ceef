// Has the server take one real step with the form's settings, and shows what it says of the whole training.

import { startAsking } from './ask_network.js';
import { clearFieldErrors, showFieldErrors, wordsOf } from './field_errors.js';
import { bytes, number, shortDuration } from './format.js';
import { postForm, urlPrefix } from './http.js';

/** `failed(fault)` is told about a mistake in the network; `focus` has ways to focus odd fields, by name. */
export function startPreflight(form, button, region, { failed, focus }) {
  startAsking(button, region, {
    doing: 'Taking one step…',
    ask() {
      clearFieldErrors(form);
      return postForm(`${urlPrefix}/models/preflight`, new FormData(form));
    },
    show,
    failed,
    refused(place, error) {
      const errors = error.body?.errors;
      if (!errors) return false;
      place.replaceChildren(mistakes(wordsOf(form, errors)));
      showFieldErrors(form, errors, focus);
      return true;
    },
  });
}

function show(region, { result = {}, warnings = [], batch_url: picture, seconds }) {
  const box = element('div', 'preflight');
  const tiles = element('div', 'tiles');
  tiles.append(...tilesOf(result).map(tile));
  if (tiles.childElementCount) box.append(tiles);
  for (const text of warnings) box.append(notice('tone-warning', text));
  const took = Number.isFinite(seconds) ? `Checked in ${seconds.toFixed(1)} s.` : 'Checked.';
  const words = element('p', 'small preflight-verdict', [sentence(result.verdict), feeding(result.input), took].filter(Boolean).join(' '));
  words.setAttribute('role', 'status');
  box.append(words);
  if (picture) box.append(batch(picture, result.batch ?? []));
  region.replaceChildren(box);
}

/** What is known, as {label, value, note}. */
function tilesOf(result) {
  const { loss, chance_loss: chance, seconds_per_step: step, seconds_per_epoch: epoch, seconds_total: total } = result;
  const { memory_bytes: memory, gpu_memory_bytes: gpuMemory, parameters, shape } = result;
  return [
    { known: loss, label: 'Loss of the first step', value: () => number(loss), note: isKnown(chance) ? `guessing gives ${number(chance)}` : '' },
    { known: epoch, label: 'An epoch', value: () => shortDuration(epoch), note: isKnown(step) ? `${shortDuration(step)} a step` : '' },
    { known: total, label: 'The whole training', value: () => shortDuration(total) },
    { known: gpuMemory ?? memory, label: isKnown(gpuMemory) ? 'Memory of the GPU' : 'Memory', value: () => bytes(gpuMemory ?? memory), note: isKnown(gpuMemory) && isKnown(memory) ? `and ${bytes(memory)} of the machine` : '' },
    { known: parameters, label: 'Parameters', value: () => parameters.toLocaleString('en') },
    { known: shape, label: 'Input', value: () => shape.join(' × '), note: 'height, width, channels' },
  ].filter(({ known }) => isKnown(known));
}

const isKnown = (value) => value !== null && value !== undefined;

function tile({ label, value, note }) {
  const box = element('div', 'tile');
  box.append(element('span', 'tile-label', label), element('span', 'tile-value', value()));
  if (note) box.append(element('span', 'tile-note', note));
  return box;
}

function feeding(input) {
  if (!input?.how) return '';
  const size = input.bytes ? ` (${bytes(input.bytes)})` : '';
  return sentence(`The input: ${input.how}${size}${input.reason ? `, ${input.reason}` : ''}`);
}

function sentence(text) {
  if (!text) return '';
  const whole = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function batch(address, items) {
  const counts = new Map();
  for (const { label } of items) counts.set(label, (counts.get(label) ?? 0) + 1);
  const words = [...counts].map(([label, count]) => `${count} × ${label}`).join(', ');
  const figure = element('figure', 'preflight-batch');
  const image = new Image();
  image.src = address;
  image.alt = 'The images of the first batch';
  image.addEventListener('load', () => image.classList.toggle('pixelated', image.naturalWidth < figure.clientWidth));
  figure.append(image, element('figcaption', 'help', `The first batch as the network gets it${words ? `: ${words}` : ''}.`));
  return figure;
}

function mistakes(items) {
  const box = notice('tone-danger', '');
  box.setAttribute('role', 'alert');
  const list = element('ul', 'plain');
  for (const { label, text, id } of items) {
    const item = element('li', '');
    if (id) {
      const link = element('a', '', label);
      link.href = `#${id}`;
      item.append(link, `: ${text}`);
    } else item.textContent = `${label}: ${text}`;
    list.append(item);
  }
  box.firstElementChild.append(element('strong', '', 'These fields need another look.'), list);
  return box;
}

function notice(tone, text) {
  const box = element('div', `notice ${tone}`);
  box.append(element('div', 'notice-body', text));
  return box;
}

function element(tag, name, text = '') {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
