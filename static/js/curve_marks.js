// Marks on the curves of a training: snapshots, changes of the learning rate, phases and warnings.

import { element } from './element.js';
import { number } from './format.js';
import { store as remember, stored } from './storage.js';

const KEY = 'curve-marks';
// Pixels between the cursor and a mark whose text is shown.
const NEAR = 7;
// A schedule that changes the rate in every row has no steps to mark; one with more steps than this has too many.
const MOST_RATES = 50;

const KINDS = {
  snapshot: { title: 'Snapshot', color: '--ink-faint' },
  best: { title: 'Best snapshot', color: '--success-solid' },
  rate: { title: 'Learning rate', color: '--chart-4' },
  phase: { title: 'Phase', color: '--chart-1' },
  warning: { title: 'Warning', color: '--warning-solid' },
};

/** The epochs at which the learning rate of `store` steps from one constant to another, as marks. */
function rateSteps(store) {
  const [column] = store.series('rate');
  if (!column) return [];
  const rows = column.values.flatMap((value, row) => (value === null ? [] : [{ value, epoch: store.epochs[row] }]));
  const found = [];
  for (let row = 1; row < rows.length; row += 1) {
    const [before, now] = [rows[row - 1].value, rows[row].value];
    if (before === now) continue;
    const wasConstant = row < 2 || rows[row - 2].value === before;
    const isConstant = row + 1 >= rows.length || rows[row + 1].value === now;
    // The row ends with the first step at the new rate.
    if (wasConstant && isConstant) found.push({ kind: 'rate', epoch: rows[row].epoch, text: `${number(before)} → ${number(now)}` });
  }
  return found.length > MOST_RATES ? [] : found;
}

/** All marks by epoch: those of the server, {kind, epoch, text}, and the steps of the learning rate. */
export function allMarks(marks, store) {
  return [...marks, ...rateSteps(store)].filter(({ kind }) => kind in KINDS).sort((a, b) => a.epoch - b.epoch);
}

export const markWords = ({ kind, text }) => `${KINDS[kind].title}: ${text}`;

/** Draws `marks`, {kind, at} with positions on the axis, into a chart. A snapshot is a short tick, others are lines. */
export function drawMarks(plot, marks, color) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const { kind, at } of marks) {
    const x = Math.round(plot.valToPos(at, 'x', true));
    ctx.strokeStyle = ctx.fillStyle = color(KINDS[kind].color);
    ctx.lineWidth = ratio;
    ctx.setLineDash(kind === 'rate' ? [3 * ratio, 3 * ratio] : []);
    ctx.beginPath();
    ctx.moveTo(x, top + height);
    ctx.lineTo(x, kind === 'snapshot' ? top + height - 6 * ratio : top);
    ctx.stroke();
    if (kind === 'best' || kind === 'warning') {
      const end = kind === 'best' ? top + height : top;
      const way = kind === 'best' ? -1 : 1;
      ctx.beginPath();
      ctx.moveTo(x - 5 * ratio, end);
      ctx.lineTo(x + 5 * ratio, end);
      ctx.lineTo(x, end + way * 8 * ratio);
      ctx.fill();
    }
  }
  ctx.restore();
}

/** The marks near the cursor of `plot`. */
export function marksNear(plot, marks) {
  const { left } = plot.cursor;
  return left < 0 ? [] : marks.filter(({ at }) => Math.abs(plot.valToPos(at, 'x') - left) <= NEAR);
}

/**
 * Starts the switch and the list of marks. `show(marks)` lists them; charts receive `marks-changed` events with those
 * to draw.
 */
export function startMarks(input, list) {
  let marks = [];
  let words = '';
  const tell = () => document.dispatchEvent(new CustomEvent('marks-changed', { detail: input.checked ? marks : [] }));
  input.checked = stored('localStorage', KEY) ?? true;
  input.addEventListener('change', () => {
    remember('localStorage', KEY, input.checked);
    tell();
  });
  return (next) => {
    const text = JSON.stringify(next);
    if (text === words) return;
    [marks, words] = [next, text];
    list.closest('details').hidden = !marks.length;
    list.closest('details').querySelector('[data-count]').textContent = marks.length;
    list.replaceChildren(...marks.map(listItem));
    tell();
  };
}

function listItem(mark) {
  const swatch = element('span', { class: 'swatch swatch-box', '--color': `var(${KINDS[mark.kind].color})` });
  return element('li', 'row', swatch, element('span', 'muted', `Epoch ${Number(mark.epoch.toFixed(2))}`), element('bdi', '', markWords(mark)));
}
