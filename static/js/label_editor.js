// Label fixing in the gallery: select images, then exclude, relabel or move them. Changes are saved as a new version.

import { element } from './element.js';
import { describeEdits, RecordEdits } from './record_edits.js';

// The elements to click or focus to select a record.
const CHOICE = '[data-enlarge], .snippet';

/** Starts the editor of `box`, the gallery of the dataset `box.dataset.dataset`; returns a function to call when its contents change. */
export function startEditing(box) {
  const edits = new RecordEdits(box.dataset.dataset);
  const selected = new Set();
  // The suggested classes of the images seen so far: those selected may be on another page.
  const suggestions = new Map();
  let isOn = edits.count > 0;
  let last = null;

  const items = () => [...box.querySelectorAll('[data-record]')];
  const bar = () => box.querySelector('#edit-bar');
  const chosen = () => Number(box.querySelector('#edit-label').value);

  function describe({ exclude, label, labels = {}, numbers = {}, split }) {
    if (exclude) return 'Excluded';
    const names = [...box.querySelectorAll('#edit-label option')].map(({ textContent }) => textContent);
    const name = (index) => names[index] ?? index;
    return [
      label === undefined ? '' : `→ ${name(label)}`,
      ...Object.entries(labels).map(([index, isAdded]) => `${isAdded ? '+' : '−'} ${name(index)}`),
      ...Object.entries(numbers).map(([index, value]) => `${name(index)} = ${value}`),
      split ? `→ ${split}` : '',
    ].filter(Boolean).join(' · ');
  }

  function draw() {
    const toggle = box.querySelector('#edit-toggle');
    if (!toggle) return;
    toggle.hidden = false;
    toggle.setAttribute('aria-pressed', String(isOn));
    bar().hidden = !isOn;
    box.classList.toggle('is-editing', isOn);
    for (const item of items()) {
      const link = item.querySelector(CHOICE);
      if (item.dataset.suggested) suggestions.set(item.dataset.record, Number(item.dataset.suggested));
      const change = edits.changes[item.dataset.record];
      const isSelected = isOn && selected.has(item.dataset.record);
      item.classList.toggle('is-selected', isSelected);
      item.classList.toggle('is-excluded', Boolean(change?.exclude));
      if (isOn) {
        link.setAttribute('role', 'checkbox');
        link.setAttribute('aria-checked', String(isSelected));
      } else {
        link.removeAttribute('role');
        link.removeAttribute('aria-checked');
      }
      item.querySelector('.change')?.remove();
      if (!change) continue;
      item.querySelector('figcaption').append(element('span', 'change badge badge-plain tone-warning', describe(change)));
    }
    const words = describeEdits(edits.toJSON());
    const count = selected.size ? `${selected.size.toLocaleString('en')} selected` : 'Select images to change them';
    box.querySelector('#edit-status').textContent = words ? `${count}. Changes: ${words}.` : `${count}.`;
    for (const button of bar().querySelectorAll('[data-needs-selection]')) button.disabled = selected.size === 0;
    bar().querySelector('[data-save]').hidden = !words;
    bar().querySelector('[data-edit="discard"]').hidden = !words;
  }

  function toggle(item, range) {
    const all = items();
    const [from, to] = range && last?.isConnected ? [all.indexOf(last), all.indexOf(item)].sort((a, b) => a - b) : [all.indexOf(item), all.indexOf(item)];
    const isAdded = !selected.has(item.dataset.record);
    for (const { dataset } of all.slice(from, to + 1)) {
      if (isAdded) selected.add(dataset.record);
      else selected.delete(dataset.record);
    }
    last = item;
    draw();
  }

  function change(value) {
    edits.apply(selected, value);
    selected.clear();
    draw();
  }

  const actions = {
    page: () => {
      for (const { dataset } of items()) selected.add(dataset.record);
      draw();
    },
    exclude: () => change({ exclude: true }),
    relabel: () => change({ label: chosen() }),
    add: () => change({ labels: { [chosen()]: true } }),
    remove: () => change({ labels: { [chosen()]: false } }),
    set: () => {
      const field = box.querySelector('#edit-number');
      if (Number.isFinite(field.valueAsNumber)) change({ numbers: { [chosen()]: field.valueAsNumber } });
      else field.focus();
    },
    suggested: () => {
      for (const record of selected) {
        if (suggestions.has(record)) edits.apply([record], { label: suggestions.get(record) });
      }
      selected.clear();
      draw();
    },
    move: () => change({ split: box.querySelector('#edit-split').value }),
    restore: () => change(null),
    discard: () => {
      edits.clear();
      selected.clear();
      draw();
    },
  };

  // Capture the event, so that the click does not enlarge the image.
  box.addEventListener(
    'click',
    (event) => {
      const item = isOn && event.target.closest(CHOICE)?.closest('[data-record]');
      if (!item) return;
      event.preventDefault();
      event.stopPropagation();
      toggle(item, event.shiftKey);
    },
    true,
  );
  box.addEventListener('click', ({ target }) => {
    if (target.closest('#edit-toggle')) {
      isOn = !isOn;
      selected.clear();
      draw();
    }
    const button = target.closest('[data-edit]');
    if (button) actions[button.dataset.edit]();
  });
  box.addEventListener('keydown', (event) => {
    if (event.target.id === 'edit-number' && event.key === 'Enter') box.querySelector('[data-edit="set"]').click();
    const item = isOn && event.target.closest(CHOICE)?.closest('[data-record]');
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === ' ') {
      event.preventDefault();
      toggle(item, event.shiftKey);
    } else if (event.key === 'x') {
      selected.add(item.dataset.record);
      actions.exclude();
    }
  });
  draw();
  return draw;
}
