// Summarizes the source of a new dataset while its path is entered: counts, sizes, the first images, problems, and fields
// to fill in.

import { button, element, notice, scrolling, table } from './element.js';
import { settled } from './form_parts.js';
import { request } from './http.js';
import { clipped, isolateQuoted } from './names.js';

const WAIT_MILLISECONDS = 500;
const SHORT_CELL = 12;
// Fields of all kinds that determine the first records and the limit, but not the contents of the source.
const STORAGE = ['resize_width', 'resize_height', 'resize_channels', 'resize_mode', 'encoding', 'max_unusable_percent'];

/** Calls `changed(example)` with the path of an image of the source, or with an empty string. */
export function startSourceSummary(form, changed) {
  const region = document.getElementById('source-summary');
  if (!region) return;
  const findings = document.getElementById('source-findings'); // beside the button that creates the dataset
  const fields = [...region.dataset.fields.split(' '), ...STORAGE];
  const files = [...form.querySelectorAll('input[type="file"]')].filter(({ name }) => fields.includes(name));
  const paths = region.dataset.paths.split(' ').map((name) => form.elements[name]);
  const isShown = (control) => !control.closest('[hidden]');
  const isPath = (control) => paths.includes(control);
  let controller = null;
  let latest = '';

  async function scan() {
    const all = new FormData(form);
    const names = fields.filter((name) => all.has(name));
    const chosen = files.filter((control) => isShown(control) && control.files.length);
    const state = JSON.stringify(names.map((name) => stateOf(all.get(name))));
    if (state === latest) return;
    latest = state;
    controller?.abort();
    controller = new AbortController();
    if (!chosen.length && !paths.some((path) => isShown(path) && path.value.trim())) return show(null);
    const body = chosen.length ? new FormData() : new URLSearchParams();
    for (const name of names) {
      const value = all.get(name);
      if (typeof value === 'string' || chosen.some((control) => control.name === name)) body.append(name, value);
    }
    const { signal } = controller;
    region.setAttribute('aria-busy', 'true'); // screen readers wait for the last summary
    try {
      const { body: stream } = await request(region.dataset.url, { method: 'POST', body, signal });
      for await (const summary of linesOf(stream)) if (!signal.aborted) show(summary);
    } catch (error) {
      if (error.name === 'AbortError') return;
      show({ refused: error.message });
    }
    if (!signal.aborted) region.removeAttribute('aria-busy');
  }

  function show(summary) {
    // Do not report an error while the path is being typed.
    const isTyping = summary?.refused && isPath(document.activeElement);
    const nodes = summary && !isTyping ? nodesOf(summary) : [];
    region.replaceChildren(...nodes);
    const found = nodes.length && !summary.refused ? findingsOf(summary) : [];
    findings.replaceChildren(...found);
    findings.hidden = found.length === 0;
    for (const [name, choices] of Object.entries(summary?.options ?? {})) offer(form.elements[name], choices);
    region.hidden = nodes.length === 0;
    changed(summary?.example ?? '');
  }

  function nodesOf(summary) {
    if (summary.refused) return [element('p', 'muted small', summary.refused)];
    const facts = element('p', 'source-facts', summary.facts.join(' '));
    const nodes = [facts];
    if (!summary.finished) facts.append(' ', element('span', 'muted', 'Reading…'));
    if (summary.previews.length) nodes.push(previews(summary.previews));
    if (summary.table?.length) nodes.push(rows(summary));
    if (summary.bars.length) nodes.push(bars(summary));
    return nodes;
  }

  function findingsOf({ suggestion: offered, remedies, problems: sentences }) {
    const nodes = [offered, ...remedies].filter((item) => item && !isUsed(item.fields)).map(suggestion);
    return sentences.length ? [...nodes, problems(sentences)] : nodes;
  }

  function suggestion({ text, action, fields: values }) {
    const box = notice('source-suggestion', element('p', '', text), button('button button-small', action, () => use(values, box)));
    return box;
  }

  const isUsed = (values) =>
    Object.entries(values).every(([name, value]) => {
      const control = form.elements[name];
      return (control.type === 'checkbox' ? control.checked : control.value) === value;
    });

  function use(values, box) {
    for (const [name, value] of Object.entries(values)) {
      const control = form.elements[name];
      if (control.type === 'checkbox') control.checked = value;
      else control.value = value;
      const target = control instanceof RadioNodeList ? [...control].find((choice) => choice.checked) : control;
      for (const type of ['input', 'change']) target.dispatchEvent(new Event(type, { bubbles: true }));
    }
    box.remove();
    findings.hidden = findings.childElementCount === 0;
    region.focus(); // because the button disappears
  }

  const scanSoon = settled(scan, WAIT_MILLISECONDS);
  for (const type of ['input', 'change']) {
    form.addEventListener(type, ({ target }) => {
      if (fields.includes(target.name)) scanSoon();
    });
  }
  // The reason why a path is refused is shown once it has been entered.
  form.addEventListener('focusout', ({ target }) => {
    if (!isPath(target) || !region.hidden) return;
    latest = '';
    scanSoon();
  });
  scan();
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

/** Draws the first records like the macro `drawn`, each with its target in words. */
function previews(records) {
  const items = records.map((record, place) =>
    element('li', '', element('figure', '', drawn(record, `Image ${place + 1}`), element('figcaption', 'muted small', clipped(record.label)))),
  );
  const list = element('ul', 'plain source-previews', ...items);
  return element('div', '', element('p', 'small muted', 'The first images, as they will be stored'), list);
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

function problems(sentences) {
  const items = sentences.map((sentence) => element('li', 'break', isolateQuoted(sentence)));
  return notice('tone-warning', element('ul', 'plain source-problems small', ...items));
}
