// Draws the learning-rate schedule while it is edited.

import uPlot from '../vendor/uplot.js';
import { settled } from './form_parts.js';
import { isShown, labelOf } from './form_sections.js';
import { number, tick } from './format.js';
import { postForm } from './http.js';
import { swapping } from './swap.js';

const COLORS = ['--chart-4', '--chart-1', '--chart-2', '--chart-3', '--chart-5', '--chart-6'];
const WAIT_MILLISECONDS = 150;
// The fields that determine the learning rate.
const SHAPING = /^(lr_.*|learning_rate|train_epochs|fine_tune|head_epochs|head_rate)$/;

/** Updates the chart in `figure` from the form. */
export function startLrPreview(form, figure) {
  const area = figure.querySelector('.chart-area');
  const caption = figure.querySelector('[data-caption]');
  let plot = null;
  let columns = [];
  const swap = swapping(area, (error) => (caption.textContent = error.message));

  function ask() {
    swap(
      (signal) => postForm(figure.dataset.url, policyFields(form), { signal }),
      ({ data }) => {
        columns = data.columns.map(([, ...values]) => values);
        build();
        describe();
      },
    );
  }

  function build() {
    plot?.destroy();
    const epochs = Number(form.elements.train_epochs.value) || 1;
    const xs = columns[0].map((_, index) => (index / (columns[0].length - 1)) * epochs);
    plot = new uPlot(options(area, columns.length), [xs, ...columns], area);
  }

  function describe() {
    const [first, last] = [columns[0][0], columns[0].at(-1)];
    const more = columns.length > 1 ? ` ${columns.length} models, one per rate.` : '';
    caption.textContent = (first === last ? `Constant at ${number(first)}.` : `From ${number(first)} to ${number(last)}.`) + more;
    area.setAttribute('aria-label', `Learning rate during training. ${caption.textContent}`);
  }

  const askSoon = settled(ask, WAIT_MILLISECONDS);
  const concerns = (event) => SHAPING.test(event.target.name ?? '') && askSoon();
  form.addEventListener('input', concerns);
  form.addEventListener('change', concerns);
  document.addEventListener('theme-changed', () => plot && build());
  new ResizeObserver(() => plot?.setSize({ width: area.clientWidth, height: area.clientHeight })).observe(area);
  ask();
}

/** The fields that determine the rate. Throws an error if the browser knows already that one is not valid. */
function policyFields(form) {
  const invalid = [...form.elements].find((control) => SHAPING.test(control.name) && isShown(control) && !control.validity.valid);
  if (invalid) throw new Error(`${labelOf(invalid)}: ${invalid.validationMessage}`);
  const picked = new FormData();
  for (const [name, value] of new FormData(form)) {
    if (SHAPING.test(name)) picked.append(name, value);
  }
  return picked;
}

function options(area, count) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color('--ink-faint'), font: `11px ${color('--font-text')}`, grid: { stroke: color('--chart-grid'), width: 1 }, ticks: { show: false } };
  return {
    width: area.clientWidth,
    height: area.clientHeight,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false },
    scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
    axes: [
      { ...axis, size: 26, gap: 4 },
      { ...axis, size: 54, gap: 4, values: (_, values, __, ___, distance) => values.map((value) => tick(value, distance)) },
    ],
    series: [{}, ...Array.from({ length: count }, (_, index) => ({ stroke: color(COLORS[index % COLORS.length]), width: 2, points: { show: false } }))],
  };
}
