// Draws the learning-rate schedule while it is edited.

import uPlot from '../vendor/uplot.js';
import { tick } from './format.js';

const COLORS = ['--chart-4', '--chart-1', '--chart-2', '--chart-3', '--chart-5', '--chart-6'];

/** Draws the rates in the data of `figure`; returns a function that does so after a change. */
export function startLrPreview(figure) {
  const area = figure.querySelector('.chart-area');
  let plot = null;
  let drawn = '';

  function draw() {
    drawn = JSON.stringify(figure.dataset);
    plot?.destroy();
    const rates = JSON.parse(figure.dataset.rates);
    plot = null;
    if (!rates.length) return; // the caption says why
    const xs = rates[0].map((_, index) => (index / (rates[0].length - 1)) * figure.dataset.epochs);
    plot = new uPlot(options(area, rates.length), [xs, ...rates], area);
    area.setAttribute('aria-label', `Learning rate during training. ${figure.querySelector('figcaption').textContent}`);
  }

  document.addEventListener('theme-changed', draw);
  new ResizeObserver(() => plot?.setSize({ width: area.clientWidth, height: area.clientHeight })).observe(area);
  draw();
  return () => drawn === JSON.stringify(figure.dataset) || draw();
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
