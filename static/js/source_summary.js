// Summarizes the source of a new dataset while its path is entered: the first images as they will be stored, beside the
// button what was found, what is recommended, and what must be answered first.

import { recommendations } from './dataset_advice.js';
import { button, element, notice, scrolling, table } from './element.js';
import { labelOf, reveal } from './form_sections.js';
import { settled } from './form_parts.js';
import { request } from './http.js';
import { clipped, isolateQuoted } from './names.js';

const WAIT_MILLISECONDS = 500;
const PATIENCE_MILLISECONDS = 3000;
const SHORT_CELL = 12;
// Fields of all kinds that determine the first records and the limit, but not the contents of the source.
const STORAGE = ['resize_width', 'resize_height', 'resize_channels', 'resize_mode', 'encoding', 'max_unusable_percent'];

/**
 * Calls `changed(summary)` after each summary; null without a source. `block(reason)` stops the button, or an empty reason
 * frees it; only the last summary of a source does. Returns {load, ready}: `load()` reads the source at once, and `ready()`
 * resolves when it was read, or after a few seconds if the button is free.
 */
export function startSourceSummary(form, { block, changed }) {
  const region = document.getElementById('source-summary');
  if (!region) return { load() {}, async ready() {} };
  const findings = document.getElementById('source-findings'); // beside the button that creates the dataset
  const empty = findings.querySelector('[data-empty]');
  const advice = recommendations(form);
  const fields = [...new Set([...region.dataset.fields.split(' '), ...STORAGE, ...advice.names])];
  const files = [...form.querySelectorAll('input[type="file"]')].filter(({ name }) => fields.includes(name));
  const paths = region.dataset.paths.split(' ').map((name) => form.elements[name]);
  const declined = new Set();
  const isShown = (control) => !control.closest('[hidden]');
  const isPath = (control) => paths.includes(control);
  let controller = null;
  let isEntered = false;
  let reading = Promise.resolve();
  let isReading = false;
  let reason = ''; // why the button is stopped
  let latest = '';
  let found = null; // the latest summary
  let shown = null; // the same, unless it is an error of a path that is being typed

  function scan() {
    const all = new FormData(form);
    const names = fields.filter((name) => all.has(name) && !advice.isOpen(name));
    const chosen = files.filter((control) => isShown(control) && control.files.length);
    const state = JSON.stringify(names.map((name) => [name, stateOf(all.get(name))]));
    if (state === latest) return;
    latest = state;
    controller?.abort();
    controller = new AbortController();
    const isGiven = chosen.length > 0 || paths.some((path) => isShown(path) && path.value.trim());
    setReading(isGiven);
    if (isGiven) reading = read(all, names, chosen, controller.signal);
    else show(null);
  }

  async function read(all, names, chosen, signal) {
    const body = chosen.length ? new FormData() : new URLSearchParams();
    for (const name of names) {
      const value = all.get(name);
      if (typeof value === 'string' || chosen.some((control) => control.name === name)) body.append(name, value);
    }
    advice.expect();
    try {
      const { body: stream } = await request(region.dataset.url, { method: 'POST', body, signal });
      for await (const summary of linesOf(stream)) {
        if (signal.aborted) continue;
        show(summary);
        if (summary.previews.length) region.removeAttribute('aria-busy');
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
      show({ refused: error.message });
    }
    if (signal.aborted) return;
    setReading(false);
    decide();
  }

  function setReading(is) {
    isReading = is;
    // Screen readers wait for the last summary.
    for (const part of [region, findings]) part.setAttribute('aria-busy', is);
  }

  /** Stops or frees the button. Summaries of a source that is still being read have no errors yet. */
  function decide() {
    const found = shown ? reasonToStop(shown) : '';
    if (isReading && !found) return;
    reason = found;
    block(reason);
  }

  function show(summary) {
    found = summary;
    // Do not report an error while the path is being typed.
    shown = summary?.refused && isPath(document.activeElement) && !isEntered ? null : summary;
    const contents = shown && !shown.refused ? contentsOf(shown) : [];
    // The images stay until there are new ones.
    const stays = contents.length && !shown.previews.length && shown.finished && region.querySelector('.source-previews');
    if (!stays) region.replaceChildren(...contents);
    region.hidden = contents.length === 0;
    for (const [name, choices] of Object.entries(shown?.options ?? {})) offer(form.elements[name], choices);
    advice.apply(shown?.advice ?? []);
    for (const path of paths) path.toggleAttribute('aria-invalid', Boolean(shown?.refused && isShown(path)));
    showFindings();
    changed(shown);
  }

  function showFindings() {
    const nodes = shown ? findingsOf(shown) : [empty];
    findings.replaceChildren(...nodes);
    decide();
  }

  const suggestions = ({ suggestion, remedies = [] }) =>
    [suggestion, ...remedies].filter((item) => item && !isUsed(item.fields) && !declined.has(item.text));

  function reasonToStop(summary) {
    if (summary.refused || Object.keys(summary.errors ?? {}).length) return 'Fix the problem above first.';
    const open = suggestions(summary).find(({ stops }) => stops);
    if (!open) return '';
    return open.decline ? 'Answer the question above first.' : 'Fix the problem above first.';
  }

  function findingsOf(summary) {
    const offered = suggestions(summary);
    if (summary.refused) return [notice('tone-danger', element('p', 'break', isolateQuoted(plain(summary.refused))), ...offered.map(answer))];
    const errors = Object.entries(summary.errors ?? {});
    const said = errors.flatMap(([, messages]) => messages).join(' ');
    const problems = summary.problems.filter((text) => !said.includes(text));
    const [first, ...rest] = summary.facts;
    const nodes = [];
    if (first) nodes.push(element('p', 'source-first', first));
    if (!summary.finished) nodes.push(element('p', 'muted small', 'Reading…'));
    if (errors.length) nodes.push(notice('tone-danger', element('ul', 'plain', ...errors.map(fault))));
    for (const item of offered) nodes.push(suggestion(item));
    if (problems.length) nodes.push(warnings(problems.map(plain)));
    nodes.push(...advice.describe());
    if (rest.length) nodes.push(element('p', 'muted small source-facts', rest.join(' ')));
    return nodes;
  }

  /** Replaces the path of an upload by its name. */
  function plain(text) {
    const uploads = paths.filter((path) => path.dataset.uploadName && path.value);
    return uploads.reduce((words, path) => words.replaceAll(path.value.replace(/\/$/, ''), path.dataset.uploadName), text);
  }

  function fault([name, messages]) {
    const control = form.querySelector(`[name="${CSS.escape(name)}"]`);
    const text = element('span', 'break', isolateQuoted(plain(messages.join(' '))));
    if (!control) return element('li', '', text);
    const link = element('a', { href: `#${control.id}` }, labelOf(control));
    link.addEventListener('click', (event) => {
      event.preventDefault();
      reveal(control);
      control.focus();
    });
    return element('li', '', link, ': ', text);
  }

  function suggestion(item) {
    if (!item.stops) return element('p', 'small', item.text, ' ', button('text-button', item.action, () => use(item.fields)));
    return notice(`${item.decline ? 'tone-info' : 'tone-danger'} source-suggestion`, element('p', '', item.text), answer(item));
  }

  function answer(item) {
    const buttons = [button('button button-small', item.action, () => use(item.fields))];
    if (item.decline) {
      buttons.push(
        button('button button-small', item.decline, () => {
          declined.add(item.text);
          showFindings();
          findings.focus(); // because the button disappears
        }),
      );
    }
    const words = shown.refused ? [element('span', '', item.text)] : [];
    return element('div', 'row', ...words, ...buttons);
  }

  const isUsed = (values) =>
    Object.entries(values).every(([name, value]) => {
      const control = form.elements[name];
      return (control.type === 'checkbox' ? control.checked : control.value) === value;
    });

  function use(values) {
    for (const [name, value] of Object.entries(values)) {
      const control = form.elements[name];
      if (control.type === 'checkbox') control.checked = value;
      else control.value = value;
      const target = control instanceof RadioNodeList ? [...control].find((choice) => choice.checked) : control;
      for (const type of ['input', 'change']) target.dispatchEvent(new Event(type, { bubbles: true }));
    }
    showFindings();
    findings.focus(); // because the button disappears
  }

  function load() {
    isEntered = true;
    if (found?.refused) show(found);
    scan();
  }

  async function ready() {
    load();
    await (reason ? reading : Promise.race([reading, new Promise((resolve) => setTimeout(resolve, PATIENCE_MILLISECONDS))]));
  }

  const scanSoon = settled(scan, WAIT_MILLISECONDS);
  for (const type of ['input', 'change']) {
    form.addEventListener(type, ({ target }) => {
      if (isPath(target)) isEntered = false;
      if (fields.includes(target.name)) scanSoon();
    });
  }
  // The reason why a path is refused is shown once it has been entered.
  form.addEventListener('focusout', ({ target }) => {
    if (isPath(target) && target.value.trim()) load();
  });
  scan();
  return { load, ready };
}

async function* linesOf(stream) {
  let rest = '';
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + decoder.decode(part.value, { stream: true })).split('\n');
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

const stateOf = (value) => (value instanceof File ? [value.name, value.size, value.lastModified] : value);

/** Replaces the options of a select field with [[value, label]…], preserving its value if possible. */
function offer(control, choices) {
  const { value } = control;
  control.replaceChildren(...choices.map(([name, words]) => new Option(words, name, name === '', name === value)));
}

function contentsOf(summary) {
  const nodes = [];
  if (summary.previews.length) nodes.push(previews(summary.previews));
  if (summary.table.length) nodes.push(rows(summary));
  if (summary.bars.length) nodes.push(bars(summary));
  return nodes;
}

/** Draws the first records like the macro `drawn`, each with its target in words. */
function previews(records) {
  const items = records.map((record, place) =>
    element('li', '', element('figure', '', drawn(record, `Image ${place + 1}`), element('figcaption', 'muted small', clipped(record.label)))),
  );
  const [{ width, height }] = records;
  const list = element('ul', 'plain source-previews', ...items);
  return element('div', '', element('p', 'small muted', `The first images, as they will be stored: ${width}×${height} pixels`), list);
}

function drawn({ url, width, height, mask, target, boxes }, alt) {
  const frame = () => element('span', { class: `drawn${Math.max(width, height) <= 64 ? ' pixelated' : ''}`, '--width': width, '--height': height });
  const image = frame();
  image.append(element('img', { src: url, alt }));
  if (mask) image.append(element('img', { class: 'mask', src: mask, 'aria-hidden': true }));
  for (const box of boxes) image.append(outline(box));
  const parts = [image];
  if (target) {
    const beside = frame();
    beside.classList.add('beside');
    beside.append(element('img', { src: target, alt: 'Target' }));
    parts.push(beside);
  }
  return element('span', 'drawings', ...parts);
}

function outline({ left, top, width, height, name, color, ignored }) {
  const box = element('span', { class: `box${ignored ? ' ignored' : ''}`, '--color': color }, element('span', { class: 'box-name', 'aria-hidden': true }, name));
  Object.assign(box.style, { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` });
  return box;
}

/** Builds a table whose last column may contain pictures. */
function rows({ table_title: title, table_head: head, table: lines, pictures }) {
  const filled = lines.map((cells, number) => {
    const row = element('tr', '', ...cells.map((text) => element('td', text.length > SHORT_CELL ? 'break' : 'nowrap', text)));
    if (pictures[number]) row.lastElementChild.prepend(element('img', { class: 'feature-picture', src: pictures[number], alt: 'Preview' }));
    return row;
  });
  return scrolling('table-wrap', title, table('table table-tight small', head, filled, element('caption', 'small muted', title)));
}

function bars({ bars_title: title, bars: counts, bars_total: total }) {
  const caption = total > counts.length ? `${title}: the first ${counts.length} of ${total.toLocaleString('en')}` : title;
  const most = Math.max(1, ...counts.map(([, count]) => count));
  const lines = counts.map(([label, count]) => {
    const part = element('span', { class: 'count-part split-color-train', '--value': (count / most) * 100 });
    return element(
      'tr',
      '',
      element('th', { scope: 'row' }, clipped(label)),
      element('td', '', element('span', { class: 'count-bar', 'aria-hidden': true }, part)),
      element('td', 'end', count.toLocaleString('en')),
    );
  });
  return element('table', 'counts-table', element('caption', 'small muted', caption), element('tbody', '', ...lines));
}

function warnings(sentences) {
  const items = sentences.map((sentence) => element('li', 'break', isolateQuoted(sentence)));
  return notice('tone-warning', element('ul', 'plain source-problems small', ...items));
}
