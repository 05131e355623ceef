// The page of a model: charts, numbers, snapshots, and predictions.

import { addChart, Chart } from './charts.js';
import { startClassifying } from './classify.js';
import { startAxis } from './curve_axes.js';
import { allMarks, startMarks } from './curve_marks.js';
import { startEpochPredictions } from './epoch_predictions.js';
import { number, percent } from './format.js';
import { highlightPython } from './highlight.js';
import { settled } from './settled.js';
import { getJson } from './http.js';
import { startJobPage } from './job_page.js';
import { join } from './live.js';
import { startManyImages } from './many_images.js';
import { MetricStore } from './metrics.js';
import { setProgress } from './progress.js';
import { refreshParts, refreshSoon } from './refresh.js';
import { startSmoothing } from './smoothing.js';
import { startPageTabs } from './tabs.js';
import { loadedWeightsNote, showLoadedWeights } from './loaded_weights.js';
import { showUsage } from './usage.js';

// Beyond this many rows, fetch the history again, downsampled by the server.
const MOST_ROWS = 20_000;
const RETRY_MILLISECONDS = 3000;
const MOST_OWN_CHARTS = 24;

startPageTabs(document.querySelector('.page-tabs'));
const about = JSON.parse(document.getElementById('model-data').textContent);
const store = new MetricStore(about.charts);
const charts = [...document.querySelectorAll('[data-chart]')].map((figure) => new Chart(figure, about.charts.find(({ id }) => id === figure.dataset.chart), about.titles));
const smoothing = startSmoothing(document.getElementById('smoothing'));
const chooseAxis = startAxis(document.getElementById('curve-axis'));
const showMarks = startMarks(document.getElementById('curve-marks'), document.getElementById('curve-events'));
let marks = [];
for (const chart of charts) chart.setSmoothing(smoothing);
startEpochPredictions(document.getElementById('epochs-panel'));
for (const id of ['classify-panel', 'generate-panel']) startClassifying(document.getElementById(id));
startManyImages(document.getElementById('many-drop'));
let cursor = null;
let loading = null;

/** Loads the whole history; later rows arrive through the socket. */
async function loadHistory() {
  const history = await getJson(about.metrics_url);
  store.load(history);
  cursor = history.cursor;
  show();
}

/** Loads rows that were missed while disconnected. Duplicate rows are ignored. */
async function loadMissed() {
  const missed = await getJson(`${about.metrics_url}?after=${cursor}`);
  if (missed.resumed) return loadHistory();
  store.add(missed.rows);
  cursor = Math.max(cursor, missed.cursor);
  show();
}

function load() {
  loading ??= (cursor === null ? loadHistory() : loadMissed())
    .catch(() => {
      // Keep curves that are drawn already; mark only charts without data as failed.
      if (cursor === null) for (const chart of charts) chart.state = 'failed';
      loadLater();
    })
    .finally(() => (loading = null));
  return loading;
}

const loadLater = settled(load, RETRY_MILLISECONDS);

function show() {
  addOwnCharts();
  const axis = chooseAxis(store);
  for (const chart of charts) {
    chart.setAxis(axis);
    chart.update(store);
  }
  showMarks(allMarks(marks, store));
  showTiles();
}

/** Adds charts of metrics that are on no other chart, such as the scalars of the network. */
function addOwnCharts() {
  const box = document.getElementById('own-charts');
  for (const { id, title } of store.ownCharts.slice(0, MOST_OWN_CHARTS)) {
    if (charts.some(({ name }) => name === id)) continue;
    charts.push(addChart(document.getElementById('own-chart'), box, id, about.titles[title] ?? title[0].toUpperCase() + title.slice(1).replaceAll('_', ' '), null, about.titles));
    box.hidden = false;
    showMarks([]); // so that the new chart receives them
  }
}

function readMarks() {
  marks = JSON.parse(document.getElementById('marks-data').textContent);
  if (store.epochs.length) showMarks(allMarks(marks, store));
}

const isLoss = (name) => /loss/i.test(name);

const last = (id) => store.last('val', (name) => store.chartOf(name).id === id);

function showTiles() {
  const epoch = store.epochs.at(-1);
  const waiting = store.last('train', (name) => name === 'waiting_share');
  const tiles = {
    epoch: epoch === undefined ? '–' : `${Number(epoch.toFixed(2))}${about.epochs ? ` / ${about.epochs}` : ''}`,
    'loss-train': number(store.last('train', isLoss)),
    'loss-val': number(store.last('val', isLoss)),
    ...Object.fromEntries(about.charts.filter((chart) => chart.has_tile).map(({ id, percent: inPercent }) => [`${id}-val`, (inPercent ? percent : number)(last(id))])),
    speed: number(store.last('train', (name) => name === 'images_per_second')),
    waiting: waiting === null ? '' : `${percent(100 * waiting, 0)} of each step waits for other workers`,
  };
  for (const [name, words] of Object.entries(tiles)) {
    const tile = document.querySelector(`[data-tile="${name}"]`);
    if (tile.textContent !== words) tile.textContent = words;
  }
}

const receive = {
  metrics(message) {
    store.add(message.rows);
    if (cursor !== null) cursor = Math.max(cursor, message.cursor);
    show();
    if (store.epochs.length > MOST_ROWS && !loading) {
      cursor = null;
      load();
    }
  },
  async resumed() {
    await loading; // It may contain rows that are invalid now.
    cursor = null;
    await load();
    load(); // Rows that arrived while the history was loading.
  },
  snapshots: () => refreshSoon(),
  best: () => refreshSoon(),
  phase: () => refreshSoon(),
  input_prepared: () => refreshParts(),
  weights_loaded: () => refreshParts(),
  usage: (message) => showUsage(document.getElementById('usage'), message.data),
  built(message) {
    document.getElementById('network-size').textContent = `${message.parameters.toLocaleString('en')} parameters`;
    refreshParts();
  },
};

function showUseOfFormat() {
  const format = document.getElementById('export-form')?.elements.format;
  if (format) document.getElementById('export-use').textContent = format.selectedOptions[0].dataset.use;
}

document.getElementById('export').addEventListener('change', showUseOfFormat);
document.addEventListener('parts-refreshed', showUseOfFormat);

document.getElementById('snapshots').addEventListener('click', (event) => {
  const link = event.target.closest('[data-export]');
  const form = document.getElementById('export-form');
  if (link && form) form.elements.snapshot_epoch.value = link.dataset.export;
});

const job = startJobPage();
document.addEventListener('task-update', ({ detail: message }) => {
  if (message.job_id === job.id) receive[message.update]?.(message);
});
document.addEventListener('job-update', ({ detail: message }) => {
  if (message.job_id === job.id && message.update === 'status') document.getElementById('usage').hidden = !message.running;
});
document.addEventListener('live-joined', load);

// A model may be created before its dataset is finished: show the dataset's progress until then.
function followDataset() {
  const id = document.querySelector('[data-waits-for]')?.dataset.waitsFor;
  if (id) join(id);
}

document.addEventListener('job-update', ({ detail: message }) => {
  const notice = document.querySelector(`[data-waits-for="${CSS.escape(message.job_id)}"]`);
  if (!notice) return;
  if (message.update === 'progress') setProgress(notice.querySelector('[data-meter]'), message.percentage, message.eta_seconds);
  if (message.update === 'status') refreshParts();
});
document.addEventListener('parts-refreshed', followDataset);
followDataset();

// Whether the network classifies or generates images is known once it is built; all panels need a snapshot.
document.addEventListener('parts-refreshed', () => {
  const generates = JSON.parse(document.getElementById('latent-data').textContent) > 0;
  const isReady = Boolean(document.getElementById('classify-snapshot').value);
  document.getElementById('generate-panel').hidden = !isReady || !generates;
  for (const panel of document.querySelectorAll('#classify-panel, #many-panel, #serving-panel')) panel.hidden = !isReady || generates;
});

let shownWeights = 'null';

function showWeights() {
  const text = document.getElementById('weights-data').textContent;
  if (text === shownWeights) return;
  shownWeights = text;
  const loaded = JSON.parse(text);
  const panel = document.getElementById('weights-panel');
  panel.hidden = false;
  panel.querySelector('summary .muted').textContent = loadedWeightsNote(loaded);
  showLoadedWeights(panel.querySelector('.panel-body'), loaded);
}

document.addEventListener('parts-refreshed', readMarks);
readMarks();
document.addEventListener('parts-refreshed', showWeights);
showWeights();
highlightPython(document.querySelector('#network-text code'));
load();
