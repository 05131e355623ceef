// Draws the curves of a store, such as a MetricStore: zoom, ranges, marks, a table, and export as PNG.

import uPlot from '../vendor/uplot.js';
import { AXES, startRange } from './curve_axes.js';
import { drawMarks, marksNear, markWords } from './curve_marks.js';
import { element, table } from './element.js';
import { number, percent, tick } from './format.js';
import { smoothed } from './smoothing.js';

const COLORS = Array.from({ length: 10 }, (_, index) => `--chart-${index + 1}`);
const SMALLEST_LOG_VALUE = 1e-9;
const TABLE_ROWS = 200;
const WORDS_MILLISECONDS = 2000;
const HIDDEN_SIZE = [600, 240];
const DIGIT_WIDTH = 6.5;

const TYPES = {
  loss: { show: number, range: fromZero, colors: COLORS },
  percent: { show: percent, range: upToHundred, unit: '%', colors: COLORS },
  rate: { show: number, range: fromZero, colors: ['--chart-4'], hasOneStage: true },
  speed: { show: number, range: fromZero, colors: ['--chart-3'], hasOneStage: true },
};

function fromZero(_, low, high) {
  return [Math.min(0, low ?? 0), high > 0 ? high * 1.06 : 1];
}

// R² and similar metrics may be negative or nearly constant.
function around(least) {
  return (_, low, high) => {
    const bottom = Math.max(low ?? 0, least ?? -Infinity);
    const margin = ((high ?? 1) - bottom) * 0.08 || 0.1;
    return [bottom - margin, Math.max(high ?? 1, bottom) + margin];
  };
}

function upToHundred(_, low, high) {
  const floor = Math.max(0, (low ?? 0) - ((high ?? 100) - (low ?? 0)) * 0.08);
  return [Math.min(floor, 98), 100];
}

/** A chart in its <figure data-chart>. `update(store)` may be called at any rate. */
export class Chart {
  /** `about` describes a chart of the model's kind: {percent, low}; `titles` are those of metrics, by name. */
  constructor(figure, about = null, titles = {}) {
    this.titles = titles;
    this.figure = figure;
    this.name = figure.dataset.chart;
    this.type = TYPES[this.name] ?? (about?.percent ? TYPES.percent : { show: number, range: around(about?.low), colors: COLORS });
    this.title = figure.querySelector('h2').textContent;
    this.area = figure.querySelector('.chart-area');
    this.legend = figure.querySelector('[data-legend]');
    this.table = figure.querySelector('.chart-table');
    this.series = [];
    this.axis = 'epoch';
    this.xs = [];
    this.marks = [];
    this.range = { type: 'auto' };
    this.isZoomed = false;
    this.weight = 0; // of the smoothing
    this.plot = null;
    this.frame = 0;
    this.spoken = element('span', { class: 'visually-hidden', role: 'status' });
    figure.append(this.spoken);
    this.tip = element('div', { class: 'chart-tip small', hidden: true });
    this.listen();
  }

  /** The state of the chart: loading, failed or ready. Only a ready chart can be empty. */
  set state(state) {
    this.figure.dataset.state = state;
    this.figure.setAttribute('aria-busy', String(state === 'loading'));
  }

  /** Draws the contents of `store`, at most once per frame; a hidden tab draws nothing. */
  update(store) {
    this.store = store;
    this.state = 'ready';
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const { xs, series } = this.store.curves(this.name, this.axis);
    const points = series.reduce((sum, { values }) => sum + values.reduce((count, value) => count + (value !== null), 0), 0);
    this.figure.dataset.points = points;
    if (!points) return;
    const same = series.length === this.series.length && series.every(({ key }, index) => key === this.series[index].key);
    this.series = series;
    this.xs = xs;
    if (!this.plot || !same) this.build();
    else if (this.isZoomed) {
      this.plot.setData(this.data(), false);
      this.plot.redraw();
    } else this.plot.setData(this.data());
    this.showLegend();
    this.describeSoon();
    if (!this.table.hidden) this.showTableSoon();
  }

  data() {
    const columns = this.series.map(({ values }) => values);
    this.smooth = new Map(this.series.filter((column) => this.isSmoothed(column)).map((column) => [column.key, smoothed(column.values, this.weight)]));
    const drawn = [...columns, ...this.smooth.values()];
    return [this.xs, ...(this.range.type === 'log' ? drawn.map((values) => values.map(forLog)) : drawn)];
  }

  // A validation is a mean over all records, and the learning rate is exact.
  isSmoothed({ name, stage }) {
    return this.weight > 0 && stage === 'train' && name !== 'learning_rate';
  }

  /** Smooths the curves with a `weight` from 0 to 1 (exclusive); the measured values remain visible beneath. */
  setSmoothing(weight) {
    this.weight = weight;
    if (!this.plot) return;
    this.build();
    this.showLegend();
  }

  /** Draws the curves over another axis: epoch, step or time. */
  setAxis(axis) {
    if (axis === this.axis) return;
    this.axis = axis;
    this.isZoomed = false;
    if (!this.plot) return;
    this.xs = this.store.curves(this.name, axis).xs;
    this.build();
    this.draw();
  }

  /** Marks events of the training, {kind, epoch, text}. */
  setMarks(marks) {
    this.marks = marks;
    this.plot?.redraw();
  }

  get placedMarks() {
    return this.marks.map((mark) => ({ ...mark, at: this.store.positionOf(mark.epoch, this.axis) }));
  }

  /* Construction ------------------------------------------------------- */

  build() {
    const zoom = this.plot && this.isZoomed ? { min: this.plot.scales.x.min, max: this.plot.scales.x.max } : null;
    this.plot?.destroy();
    const data = this.data();
    this.plot = new uPlot(this.options(), data, this.area);
    if (zoom) this.plot.setScale('x', zoom);
  }

  options() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color('--ink-faint'), font: `11px ${color('--font-text')}`, grid: { stroke: color('--chart-grid'), width: 1 }, ticks: { show: false } };
    return {
      width: this.area.clientWidth || HIDDEN_SIZE[0], // for paper, which shows all charts
      height: this.area.clientHeight || HIDDEN_SIZE[1],
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false }, sync: { key: 'metrics', setSeries: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: this.yScale() },
      axes: [
        { ...axis, size: 28, gap: 4, ...this.xLabels() },
        { ...axis, size: (_, words) => Math.max(52, 12 + DIGIT_WIDTH * Math.max(...(words ?? []).map(({ length }) => length))), gap: 4, values: (_, values, __, ___, distance) => values.map((value) => this.label(value, distance)) },
      ],
      series: [
        { label: AXES[this.axis].title },
        ...this.series.map((column, index) => ({ ...this.line(column, index, color), alpha: this.isSmoothed(column) ? 0.3 : 1 })),
        ...this.series.flatMap((column, index) => (this.isSmoothed(column) ? [{ ...this.line(column, index, color), width: 2 }] : [])),
      ],
      hooks: {
        setScale: [(plot, key) => key === 'x' && this.noticeZoom(plot)],
        setCursor: [(plot) => this.followCursor(plot)],
        draw: [(plot) => this.marks.length && drawMarks(plot, this.placedMarks, color)],
        ready: [(plot) => plot.over.append(this.tip)],
      },
    };
  }

  yScale() {
    if (this.range.type === 'log') return { distr: 3 };
    const { low, high } = this.range;
    return { range: this.range.type === 'fixed' ? () => [low, high] : this.type.range };
  }

  xLabels() {
    const { steps, show } = AXES[this.axis];
    if (steps) return { incrs: steps, space: 70, values: (_, values) => values.map(show) };
    return { values: (_, values, __, ___, distance) => values.map((value) => tick(value, distance)) };
  }

  // A log axis has labels only at powers of ten; the others are null.
  label(value, distance) {
    if (value === null) return '';
    return (this.range.type === 'log' ? number(value) : tick(value, distance)) + (this.type.unit ?? '');
  }

  line(column, index, color) {
    const stroke = color(this.colorOf(index));
    const validation = column.stage === 'val';
    const isDashed = column.isDashed ?? validation;
    return {
      label: this.labelOf(column),
      stroke,
      width: validation ? 2 : 1.5,
      dash: isDashed ? [6, 4] : undefined,
      spanGaps: true,
      points: { show: validation || undefined, size: validation ? 5 : 4, fill: stroke },
    };
  }

  /** Each metric has two colors, for training and validation, whichever of them is measured first. */
  colorOf(index) {
    const { color, name, stage } = this.series[index];
    if (color) return color;
    const place = 2 * this.names.indexOf(name) + (stage === 'val' ? 1 : 0);
    return this.type.colors[place % this.type.colors.length];
  }

  get names() {
    return [...new Set(this.series.map(({ name }) => name))];
  }

  labelOf({ label, name, stage }) {
    if (label) return label;
    if (name.includes('/')) return name.slice(name.indexOf('/') + 1); // its chart is called like the part before
    const title = this.titles[name] ?? name.replaceAll('_', ' ');
    if (this.type.hasOneStage) return title[0].toUpperCase() + title.slice(1);
    const words = { train: 'Training', val: 'Validation' }[stage];
    return this.names.length === 1 ? words : `${words} ${title}`;
  }

  noticeZoom(plot) {
    const xs = plot.data[0];
    const { min, max } = plot.scales.x;
    this.isZoomed = xs.length > 1 && (min > xs[0] + 1e-9 || max < xs.at(-1) - 1e-9);
    this.figure.querySelector('[data-tool="reset"]').hidden = !this.isZoomed;
  }

  followCursor(plot) {
    this.showLegend();
    const near = this.marks.length && (this.area.matches(':hover') || this.area === document.activeElement) ? marksNear(plot, this.placedMarks) : [];
    this.tip.hidden = !near.length;
    if (!near.length) return;
    this.tip.replaceChildren(...near.map((mark) => element('p', '', markWords(mark))));
    const left = plot.valToPos(near[0].at, 'x');
    const isRight = left > plot.over.clientWidth / 2;
    this.tip.style.left = isRight ? '' : `${left + 8}px`;
    this.tip.style.right = isRight ? `${plot.over.clientWidth - left + 8}px` : '';
  }

  /* Legend and table --------------------------------------------------- */

  /** Each series with its value at the cursor, or its latest one. */
  showLegend() {
    const at = this.plot?.cursor.idx ?? null;
    const values = this.series.map(({ key, values: measured }) => {
      const column = this.smooth?.get(key) ?? measured;
      return nearestLeft(column, at ?? column.length - 1);
    });
    if (this.legend.childElementCount !== this.series.length) {
      this.legend.replaceChildren(...this.series.map((column, index) => this.legendItem(column, index)));
    }
    [...this.legend.children].forEach((item, index) => {
      item.querySelector('b').textContent = values[index] === null ? '–' : this.type.show(values[index]);
    });
  }

  legendItem(column, index) {
    const name = (column.isDashed ?? column.stage === 'val') ? 'swatch swatch-dashed' : 'swatch';
    return element('li', '', element('span', { class: name, '--color': `var(${this.colorOf(index)})` }), `${this.labelOf(column)} `, element('b'));
  }

  describeSoon() {
    this.describing ||= setTimeout(() => {
      this.describing = 0;
      const latest = this.series.map((column) => `${this.labelOf(column)} ${this.type.show(nearestLeft(column.values, column.values.length - 1))}`);
      this.area.setAttribute('aria-label', `${this.title} by ${AXES[this.axis].title.toLowerCase()}, up to ${this.position(this.xs.length - 1)}. Latest: ${latest.join(', ')}.`);
    }, this.described ? WORDS_MILLISECONDS : 0);
    this.described = true;
  }

  /** A position in words, such as "epoch 3". */
  position(row) {
    return `${AXES[this.axis].title.toLowerCase()} ${AXES[this.axis].show(this.xs[row])}`;
  }

  showTableSoon() {
    this.tabling ||= setTimeout(() => {
      this.tabling = 0;
      this.showTable();
    }, 500);
  }

  showTable() {
    const rows = [...this.xs.keys()].reverse().filter((row) => this.series.some(({ values }) => values[row] !== null));
    const lines = rows.slice(0, TABLE_ROWS).map((row) => {
      const cells = this.series.map(({ values }) => element('td', '', values[row] === null ? '' : this.type.show(values[row])));
      return element('tr', '', element('td', '', AXES[this.axis].show(this.xs[row])), ...cells);
    });
    this.table.replaceChildren(table('table table-tight', [AXES[this.axis].title, ...this.series.map((column) => this.labelOf(column))], lines));
  }

  /* Toolbar ------------------------------------------------------------ */

  listen() {
    const tools = {
      // The charts zoom together, so they are reset together.
      reset: () => document.dispatchEvent(new CustomEvent('zoom-reset')),
      table: (button) => {
        const shown = toggle(button);
        this.table.hidden = !shown;
        this.area.hidden = shown;
        if (shown) this.showTable();
      },
      png: () => this.savePicture(),
    };
    this.figure.addEventListener('click', (event) => {
      const button = event.target.closest('[data-tool]');
      if (button) tools[button.dataset.tool](button);
    });
    const shown = () => (this.plot ? [this.plot.scales.y.min ?? 0, this.plot.scales.y.max ?? 1] : [0, 1]);
    startRange(this.figure, this.name, shown, (range) => {
      this.range = range;
      if (this.plot) this.build();
    });
    this.area.addEventListener('keydown', (event) => this.moveCursor(event));
    this.area.addEventListener('blur', () => this.plot?.setCursor({ left: -10, top: -10 }));
    document.addEventListener('zoom-reset', () => this.resetZoom());
    document.addEventListener('smoothing-changed', ({ detail }) => this.setSmoothing(detail));
    document.addEventListener('axis-changed', ({ detail }) => this.setAxis(detail));
    document.addEventListener('marks-changed', ({ detail }) => this.setMarks(detail));
    document.addEventListener('theme-changed', () => this.plot && this.build());
    new ResizeObserver(() => {
      if (this.plot && this.area.clientWidth) this.plot.setSize({ width: this.area.clientWidth, height: this.area.clientHeight });
    }).observe(this.area);
  }

  resetZoom() {
    if (!this.plot) return;
    this.plot.setScale('x', { min: this.xs[0], max: this.xs.at(-1) });
  }

  moveCursor(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (!this.plot || (!step && !['Home', 'End', 'Escape'].includes(event.key))) return;
    event.preventDefault();
    if (event.key === 'Escape') return this.plot.setCursor({ left: -10, top: -10 });
    const last = this.xs.length - 1;
    const from = this.plot.cursor.idx ?? last;
    const to = event.key === 'Home' ? 0 : event.key === 'End' ? last : Math.min(last, Math.max(0, from + step));
    this.plot.setCursor({ left: this.plot.valToPos(this.xs[to], 'x'), top: this.area.clientHeight / 3 });
    const values = this.series.map((column) => `${this.labelOf(column)} ${this.type.show(nearestLeft(column.values, to))}`);
    const marks = marksNear(this.plot, this.placedMarks).map(markWords);
    const position = this.position(to);
    this.spoken.textContent = `${position[0].toUpperCase()}${position.slice(1)}: ${[...values, ...marks].join(', ')}`;
  }

  /** Saves the chart with its title and legend on the page's background. */
  savePicture() {
    if (!this.plot) return;
    const source = this.plot.ctx.canvas;
    const ratio = source.width / this.area.clientWidth;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const canvas = document.createElement('canvas');
    const headHeight = 48 * ratio;
    canvas.width = source.width;
    canvas.height = source.height + headHeight;
    const context = canvas.getContext('2d');
    context.fillStyle = color('--surface');
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(source, 0, headHeight);
    context.fillStyle = color('--ink');
    context.font = `600 ${14 * ratio}px ${color('--font-text')}`;
    context.fillText(`${document.getElementById('job-name').textContent}: ${this.title}`, 12 * ratio, 19 * ratio);
    context.font = `${11 * ratio}px ${color('--font-text')}`;
    let left = 12 * ratio;
    this.series.forEach((column, index) => {
      context.fillStyle = color(this.colorOf(index));
      context.fillRect(left, 34 * ratio, 14 * ratio, 3 * ratio);
      context.fillStyle = color('--ink');
      context.fillText(this.labelOf(column), left + 20 * ratio, 39 * ratio);
      left += 36 * ratio + context.measureText(this.labelOf(column)).width;
    });
    canvas.toBlob((blob) => {
      const link = element('a', { href: URL.createObjectURL(blob), download: `${this.name}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
  }
}

/** Adds the chart `name` to `box`, made from a template. `about` describes it, as in `Chart`. */
export function addChart(template, box, name, title, about, titles) {
  const figure = template.content.firstElementChild.cloneNode(true);
  figure.id = `chart-${name}`;
  figure.dataset.chart = name;
  figure.querySelector('h2').textContent = title;
  for (const item of figure.querySelectorAll('[aria-label]')) item.setAttribute('aria-label', item.getAttribute('aria-label').replace('Metric', title));
  for (const item of figure.querySelectorAll('[id]')) item.removeAttribute('id');
  box.append(figure);
  const chart = new Chart(figure, about, titles);
  chart.setSmoothing(document.getElementById('smoothing').valueAsNumber / 100);
  return chart;
}

const forLog = (value) => (value === null || value <= 0 ? null : Math.max(value, SMALLEST_LOG_VALUE));

function nearestLeft(values, at) {
  for (let index = Math.min(at, values.length - 1); index >= 0; index -= 1) {
    if (values[index] !== null) return values[index];
  }
  return null;
}

function toggle(button) {
  const pressed = button.getAttribute('aria-pressed') !== 'true';
  button.setAttribute('aria-pressed', String(pressed));
  return pressed;
}
