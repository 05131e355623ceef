// The page that compares models: their curves, one chart for each metric.

import { addChart } from './charts.js';
import { startAxis } from './curve_axes.js';
import { getJson } from './http.js';
import { MetricStore, sharedChart } from './metrics.js';
import { startSmoothing } from './smoothing.js';
import { store as remember, stored } from './storage.js';

const STAGE_KEY = 'compared-stage';
const MOST_CHARTS = 24;
const REFRESH_MILLISECONDS = 15_000;
const EVALUATION_MILLISECONDS = 2000;
// Charts of these metrics come last.
const LAST = ['learning_rate', 'images_per_second'];

/** The curves of several models, each with a MetricStore, over the positions of all of them. */
class ComparedStore {
  constructor(models) {
    this.models = models;
    this.stage = 'both';
  }

  has(axis) {
    return this.models.every(({ store }) => store.has(axis));
  }

  /** The names of the metrics that any model has in a stage, the metrics of kinds first. */
  get metrics() {
    const names = this.models.flatMap(({ store }) => [...store.columns.values()].filter((column) => this.shows(column)).map(({ name }) => name));
    const place = (name) => (LAST.includes(name) ? 2 : this.models.some(({ store }) => store.chartOf(name).isOwn) ? 1 : 0);
    return [...new Set(names)].sort((a, b) => place(a) - place(b));
  }

  /** The curves of the metric `name`; values are null at the positions of other models. */
  curves(name, axis) {
    const chosen = this.models.flatMap((model) => [...model.store.columns.values()].filter((column) => column.name === name && this.shows(column)).map((column) => ({ model, column })));
    const xs = [...new Set(chosen.flatMap(({ model }) => model.store.positions(axis)))].sort((a, b) => a - b);
    const rows = new Map(xs.map((x, row) => [x, row]));
    const series = chosen.map(({ model, column }) => {
      const values = new Array(xs.length).fill(null);
      model.store.positions(axis).forEach((x, row) => {
        if (column.values[row] !== null) values[rows.get(x)] = column.values[row];
      });
      const label = this.stage === 'both' ? `${model.label} (${column.stage})` : model.label;
      return { key: `${model.url} ${column.stage}`, name, stage: column.stage, label, color: model.color, isDashed: this.stage === 'both' && column.stage === 'val', values };
    });
    return { xs, series };
  }

  // Only a training has a rate and a speed.
  shows({ name, stage }) {
    return this.stage === 'both' || stage === this.stage || LAST.includes(name);
  }
}

const models = JSON.parse(document.getElementById('comparison-data').textContent).map((model, index) => ({
  ...model,
  color: `--chart-${index + 1}`,
  store: new MetricStore(model.charts),
}));
const compared = new ComparedStore(models);
const charts = new Map();
const box = document.getElementById('compared-charts');
const status = document.getElementById('curves-status');
const chooseAxis = startAxis(document.getElementById('curve-axis'));
const stage = document.getElementById('curve-stage');
startSmoothing(document.getElementById('smoothing'));
stage.value = stored('localStorage', STAGE_KEY) ?? 'val';
if (!stage.value) stage.value = 'val';

// Without a validation, only the training has curves.
function chooseStage() {
  const validates = models.some(({ store }) => [...store.columns.values()].some((column) => column.stage === 'val'));
  for (const option of stage.options) option.disabled = !validates && option.value !== 'train';
  return validates ? stage.value : (stage.value = 'train');
}

function show() {
  compared.stage = chooseStage();
  const axis = chooseAxis(compared);
  const names = compared.metrics.slice(0, MOST_CHARTS);
  for (const name of names) if (!charts.has(name)) charts.set(name, newChart(name));
  for (const [name, chart] of charts) {
    chart.figure.hidden = !names.includes(name);
    chart.setAxis(axis);
    if (!chart.figure.hidden) chart.update(compared);
  }
  box.append(...names.map((name) => charts.get(name).figure));
  status.textContent = names.length ? '' : 'No values recorded.';
}

function newChart(name) {
  const { title, chart } = sharedChart(models, name);
  return addChart(document.getElementById('compared-chart'), box, name, title, chart);
}

async function load(chosen) {
  const results = await Promise.allSettled(chosen.map(async (model) => model.store.load(await getJson(model.url))));
  show();
  const failed = chosen.filter((_, index) => results[index].status === 'rejected').map(({ label }) => label);
  if (failed.length) status.textContent = `The values of ${failed.join(', ')} could not be loaded.`;
}

stage.addEventListener('change', () => {
  remember('localStorage', STAGE_KEY, stage.value);
  show();
});
load(models);
const running = models.filter(({ running: isRunning }) => isRunning);
if (running.length) setInterval(() => document.hidden || load(running), REFRESH_MILLISECONDS);

// The page contains the compared predictions when both evaluations are done.
const evaluating = document.getElementById('evaluating');
if (evaluating) {
  const urls = JSON.parse(evaluating.dataset.urls);
  const timer = setInterval(async () => {
    const states = await Promise.allSettled(urls.map((url) => getJson(url)));
    if (states.some(({ value }) => value?.state === 'running')) return;
    clearInterval(timer);
    window.location.reload();
  }, EVALUATION_MILLISECONDS);
}
