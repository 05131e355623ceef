// Label fixing in the gallery and in the large view: exclude, relabel or move images. Changes are saved as a new version.

import { toast } from './dialog.js';
import { button, element } from './element.js';
import { RecordEdits } from './record_edits.js';

// The elements to click or focus to select a record.
const CHOICE = '[data-enlarge], .snippet';
// The keys of the first classes. In the large view, U and X restore and exclude an image.
const CLASS_KEYS = [...'1234567890qwertyiopasdfghjklzcvbnm'];
// A mouse that moves farther, in pixels, selects the images in a rectangle.
const DRAG_DISTANCE = 6;

/** Starts the editor of `box`, the gallery of the dataset `box.dataset.dataset`, and of the large view `dialog`. */
export function startEditing(box, dialog) {
  const failed = (error) => {
    toast(`${error.status === 409 ? '' : 'The changes are not saved. '}${error.message} ${error.hint}`, 'danger');
    draw();
  };
  const edits = new RecordEdits(JSON.parse(box.dataset.edits), box.dataset.editsUrl, failed);
  const { names, form } = JSON.parse(box.dataset.target);
  const panel = dialog.querySelector('#viewer-edit');
  const selected = new Set();
  // The suggested classes of the images seen so far: those selected may be on another page.
  const suggestions = new Map();
  let isOn = edits.count > 0;
  let last = null;
  let enlarged = null;

  const items = () => [...box.querySelectorAll('[data-record]')];
  const bar = () => box.querySelector('#edit-bar');
  const chosen = () => Number(box.querySelector('#edit-label').value);
  const name = (index) => names[index] ?? index;
  const isKeyed = form === 'class' && names.length <= CLASS_KEYS.length;

  function describe({ exclude, label, labels = {}, numbers = {}, split }) {
    if (exclude) return 'Excluded';
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
    if (isKeyed && box.querySelector('#edit-label')) drawClasses();
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
    const words = edits.words;
    const count = selected.size ? `${selected.size.toLocaleString('en')} selected` : 'Select images to change them';
    box.querySelector('#edit-status').textContent = words ? `${count}. Changes: ${words}.` : `${count}.`;
    for (const control of bar().querySelectorAll('[data-needs-selection]')) control.disabled = selected.size === 0;
    bar().querySelector('[data-save]').hidden = !words;
    bar().querySelector('[data-edit="discard"]').hidden = !words;
    drawPanel();
  }

  /** Replaces the choice of a class by buttons that show the keys. */
  function drawClasses() {
    const buttons = names.map((text, index) => {
      const made = keyButton(CLASS_KEYS[index], text, () => change({ label: index }));
      made.dataset.needsSelection = '';
      return made;
    });
    box.querySelector('#edit-classes').replaceChildren(element('span', 'small', 'Relabel as'), ...buttons);
  }

  // The changes of the enlarged image

  /** Whether the enlarged image has the class or label `index`, with its change. */
  function has(index) {
    const { label, labels } = edits.changes[enlarged.record] ?? {};
    if (label !== undefined) return label === index;
    return labels?.[index] ?? enlarged.labels.includes(names[index]);
  }

  function toggleClass(index) {
    if (form === 'labels') change({ labels: { [index]: !has(index) } }, [enlarged.record]);
    else if (enlarged.labels.includes(names[index])) change(null, [enlarged.record]);
    else change({ label: index }, [enlarged.record]);
  }

  const panelActions = {
    x: () => change(edits.changes[enlarged.record]?.exclude ? null : { exclude: true }, [enlarged.record]),
    u: () => change(null, [enlarged.record]),
  };

  function drawPanel() {
    panel.hidden = !enlarged;
    if (!enlarged) return;
    const pending = edits.changes[enlarged.record];
    const hasFocus = panel.contains(document.activeElement) ? [...panel.querySelectorAll('button')].indexOf(document.activeElement) : -1;
    const classes = form === 'class' || form === 'labels' ? names.map((text, index) => keyButton(CLASS_KEYS[index], index === suggestions.get(enlarged.record) ? `${text} (suggested)` : text, () => toggleClass(index), has(index))) : [];
    panel.replaceChildren(
      element('div', { class: 'class-keys row scroll', role: 'group', 'aria-label': form === 'labels' ? 'Labels' : 'Class' }, ...classes),
      element('div', 'row', keyButton('x', 'Exclude', panelActions.x, Boolean(pending?.exclude)), pending ? keyButton('u', 'Undo', panelActions.u) : ''),
      element('p', { class: 'small muted', role: 'status' }, pending ? `Change for a new version: ${describe(pending)}` : ''),
    );
    panel.querySelectorAll('button')[hasFocus]?.focus();
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

  function change(value, records = [...selected]) {
    edits.apply(records, value);
    if (enlarged) isOn = isOn || edits.count > 0;
    else selected.clear();
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
  box.addEventListener('click', async (event) => {
    if (event.target.closest('#edit-toggle')) {
      isOn = !isOn;
      selected.clear();
      draw();
    }
    const control = event.target.closest('[data-edit]');
    if (control) actions[control.dataset.edit]();
    const save = event.target.closest('[data-save]');
    if (save) {
      event.preventDefault();
      await edits.saved;
      window.location.assign(save.href);
    }
  });
  // The keys change the selected images, or the focused one.
  document.addEventListener('keydown', (event) => {
    if (event.target.id === 'edit-number' && event.key === 'Enter') box.querySelector('[data-edit="set"]').click();
    if (!isOn || dialog.open || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select')) return;
    const focused = event.target.closest(CHOICE)?.closest('[data-record]')?.dataset.record;
    const records = selected.size ? [...selected] : focused ? [focused] : [];
    const index = CLASS_KEYS.indexOf(event.key);
    if (event.key === ' ' && focused) {
      event.preventDefault();
      toggle(event.target.closest('[data-record]'), event.shiftKey);
    } else if (event.key === 'x') change({ exclude: true }, records);
    else if (form === 'class' && index >= 0 && index < names.length) change({ label: index }, records);
  });
  selectByDragging(box, () => isOn, (chosenItems) => {
    for (const { dataset } of chosenItems) selected.add(dataset.record);
    draw();
  });
  dialog.addEventListener('close', () => {
    enlarged = null;
  });
  draw();

  return {
    draw,
    /** Shows the changes of an image in the large view. */
    enlarge(link) {
      const { dataset } = link.closest('[data-record]');
      const label = link.closest('figure').querySelector('figcaption bdi').title;
      enlarged = { record: dataset.record, labels: form === 'labels' ? label.split(', ') : [label] };
      drawPanel();
    },
    /** Changes the enlarged image; returns whether the key means something. */
    press(key) {
      const index = CLASS_KEYS.indexOf(key);
      if (panelActions[key]) panelActions[key]();
      else if ((form === 'class' || form === 'labels') && index >= 0 && index < names.length) toggleClass(index);
      else return false;
      return true;
    },
  };
}

/** A button that shows its key. */
function keyButton(key, words, act, isPressed) {
  const made = button('button button-small', '', act);
  made.append(key ? element('kbd', '', key.toUpperCase()) : '', element('bdi', 'clipped', words));
  if (isPressed !== undefined) made.setAttribute('aria-pressed', String(isPressed));
  return made;
}

/** Calls `select` with the records in the rectangle that a mouse draws over the gallery in `box`. */
function selectByDragging(box, isOn, select) {
  const frame = element('div', 'drag-frame');
  let start = null;
  box.addEventListener('dragstart', (event) => isOn() && event.preventDefault());
  box.addEventListener('pointerdown', ({ button: pressed, pointerType, pageX, pageY, target }) => {
    start = isOn() && pressed === 0 && pointerType === 'mouse' && target.closest('.gallery') ? { x: pageX, y: pageY } : null;
  });
  document.addEventListener('pointermove', ({ pageX, pageY }) => {
    if (!start || (!frame.isConnected && Math.hypot(pageX - start.x, pageY - start.y) < DRAG_DISTANCE)) return;
    if (!frame.isConnected) document.body.append(frame);
    const [left, right] = [pageX, start.x].sort((a, b) => a - b);
    const [top, bottom] = [pageY, start.y].sort((a, b) => a - b);
    Object.assign(frame.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
  });
  document.addEventListener('pointerup', () => {
    start = null;
    if (!frame.isConnected) return;
    const area = frame.getBoundingClientRect();
    frame.remove();
    select(
      [...box.querySelectorAll('[data-record]')].filter((item) => {
        const { left, right, top, bottom } = item.getBoundingClientRect();
        return left < area.right && right > area.left && top < area.bottom && bottom > area.top;
      }),
    );
    // The click that may follow would toggle the image under the mouse.
    const ignore = (event) => event.stopPropagation() || event.preventDefault();
    window.addEventListener('click', ignore, true);
    setTimeout(() => window.removeEventListener('click', ignore, true));
  });
}
