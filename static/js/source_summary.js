// Summarizes the source of a new dataset while its path is entered: counts, sizes, problems, and fields to fill in.

import { element, notice } from './element.js';
import { settled } from './form_parts.js';
import { request } from './http.js';
import { clipped, isolateQuoted } from './names.js';

const WAIT_MILLISECONDS = 500;

/** Calls `changed(example)` with the path of an image of the source, or with an empty string. */
export function startSourceSummary(form, changed) {
  const region = document.getElementById('source-summary');
  if (!region) return;
  const fields = region.dataset.fields.split(' ').map((name) => form.elements[name]);
  const [path] = fields;
  let controller = null;
  let latest = '';

  async function scan() {
    const all = new FormData(form);
    const body = new URLSearchParams(fields.filter(({ name }) => all.has(name)).map(({ name }) => [name, all.get(name)]));
    if (body.toString() === latest) return;
    latest = body.toString();
    controller?.abort();
    controller = new AbortController();
    if (!path.value.trim()) return show(null);
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
    const isTyping = summary?.refused && document.activeElement === path;
    const nodes = summary && !isTyping ? nodesOf(summary) : [];
    region.replaceChildren(...nodes);
    region.hidden = nodes.length === 0;
    changed(summary?.example ?? '');
  }

  function nodesOf(summary) {
    if (summary.refused) return [element('p', 'muted small', summary.refused)];
    const facts = element('p', 'source-facts', summary.facts.join(' '));
    const nodes = [facts];
    if (!summary.finished) facts.append(' ', element('span', 'muted', 'Reading…'));
    if (summary.suggestion) nodes.push(suggestion(summary.suggestion));
    if (summary.problems.length) nodes.push(problems(summary.problems));
    if (summary.bars.length) nodes.push(bars(summary));
    return nodes;
  }

  function suggestion({ text, action, fields: values }) {
    const box = notice('source-suggestion', '');
    const button = element('button', 'button button-small', action);
    button.type = 'button';
    button.addEventListener('click', () => use(values));
    box.firstElementChild.append(element('p', '', text), button);
    return box;
  }

  function use(values) {
    for (const [name, value] of Object.entries(values)) {
      const control = form.elements[name];
      if (control.type === 'checkbox') control.checked = value;
      else control.value = value;
      control.dispatchEvent(new Event('change', { bubbles: true }));
    }
    region.focus(); // because the button disappears
  }

  const scanSoon = settled(scan, WAIT_MILLISECONDS);
  for (const field of fields) {
    field.addEventListener('input', scanSoon);
    field.addEventListener('change', scanSoon);
  }
  // The reason why a path is refused is shown once it has been entered.
  path.addEventListener('blur', () => {
    if (!region.hidden) return;
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

function bars({ bars_title: title, bars: counts, bars_total: total }) {
  const table = element('table', 'counts-table');
  table.append(element('caption', 'small muted', total > counts.length ? `${title}: the first ${counts.length} of ${total.toLocaleString('en')}` : title));
  const body = document.createElement('tbody');
  const most = Math.max(1, ...counts.map(([, count]) => count));
  for (const [label, count] of counts) {
    const head = element('th');
    head.scope = 'row';
    head.append(clipped(label));
    const picture = element('td');
    const bar = element('span', 'count-bar');
    bar.setAttribute('aria-hidden', 'true');
    const part = element('span', 'count-part split-color-train');
    part.style.setProperty('--value', (count / most) * 100);
    bar.append(part);
    picture.append(bar);
    const row = document.createElement('tr');
    row.append(head, picture, element('td', 'end', count.toLocaleString('en')));
    body.append(row);
  }
  table.append(body);
  return table;
}

function problems(sentences) {
  const box = notice('tone-warning', '');
  const list = element('ul', 'plain source-problems small');
  for (const sentence of sentences) {
    const item = element('li', 'break');
    item.append(isolateQuoted(sentence));
    list.append(item);
  }
  box.firstElementChild.append(list);
  return box;
}
