// The axes of charts: epochs, steps or time below; automatic, fixed or logarithmic at the side. Both are remembered.

import { elapsed, number } from './format.js';
import { store as remember, stored } from './storage.js';

const AXIS_KEY = 'curve-axis';
const RANGES_KEY = 'curve-ranges';
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** The horizontal axes: their title, the words of a position, and the distances of labels (null: uPlot's own). */
export const AXES = {
  epoch: { title: 'Epoch', show: number },
  step: { title: 'Step', show: (value) => Math.round(value).toLocaleString('en') },
  time: { title: 'Time', show: elapsed, steps: [0.001, 0.01, 0.1, 0.5, ...TIME_STEPS, ...[2, 5, 10, 20, 50, 100].map((days) => days * 86400)] },
};

/**
 * Starts the choice of the horizontal axis; charts receive `axis-changed` events. Returns a function that disables
 * the axes that `store` does not have, and returns the current axis.
 */
export function startAxis(select) {
  select.value = stored('localStorage', AXIS_KEY) ?? 'epoch';
  if (!select.value) select.value = 'epoch';
  let wanted = select.value;
  const tell = () => document.dispatchEvent(new CustomEvent('axis-changed', { detail: select.value }));
  select.addEventListener('change', () => {
    wanted = select.value;
    remember('localStorage', AXIS_KEY, wanted);
    tell();
  });
  return (store) => {
    for (const option of select.options) {
      option.disabled = !store.has(option.value);
      option.textContent = AXES[option.value].title + (option.disabled ? ' (not in the log)' : '');
    }
    const next = store.has(wanted) ? wanted : 'epoch';
    if (next !== select.value) {
      select.value = next;
      tell();
    }
    return next;
  };
}

const AUTOMATIC = { type: 'auto' };

/** The remembered range of the chart `name`: {type: 'auto', 'log' or 'fixed', low, high}. */
function storedRange(name) {
  const range = stored('localStorage', RANGES_KEY)?.[name];
  if (range?.type === 'fixed' && !(range.low < range.high)) return AUTOMATIC;
  return ['auto', 'fixed', 'log'].includes(range?.type) ? range : AUTOMATIC;
}

/** Starts the choice of a chart's range. `changed(range)` is called now and after a change; `shown()` returns [low, high]. */
export function startRange(figure, name, shown, changed) {
  const type = figure.querySelector('[data-range]');
  const ends = figure.querySelector('[data-range-ends]');
  const [low, high] = ends.querySelectorAll('input');
  const show = (range) => {
    type.value = range.type;
    ends.hidden = range.type !== 'fixed';
    if (range.type === 'fixed') [low.value, high.value] = [range.low, range.high];
    changed(range);
  };
  const choose = (range) => {
    remember('localStorage', RANGES_KEY, { ...stored('localStorage', RANGES_KEY), [name]: range });
    show(range);
  };
  type.addEventListener('change', () => {
    if (type.value !== 'fixed') return choose({ type: type.value });
    const [from, to] = shown().map((value) => Number(value.toPrecision(3)));
    choose({ type: 'fixed', low: from, high: to > from ? to : from + 1 });
    low.focus();
  });
  ends.addEventListener('change', () => {
    const isRange = low.valueAsNumber < high.valueAsNumber;
    high.setCustomValidity(isRange ? '' : 'The maximum must be greater than the minimum.');
    if (isRange) choose({ type: 'fixed', low: low.valueAsNumber, high: high.valueAsNumber });
    else high.reportValidity();
  });
  show(storedRange(name));
}
