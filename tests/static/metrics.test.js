import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MetricStore, sharedChart } from '../../static/js/metrics.js';
import cases from './charts.json' with { type: 'json' };

const RATE = { id: 'rate', metrics: ['learning_rate'] };
const LOSS = { id: 'loss', metrics: ['loss'] };
const ACCURACY = { id: 'accuracy', metrics: ['accuracy'], percent: true };
const values = (store, chart) => store.series(chart).map((column) => [column.stage, column.values]);

test('repeated and late rows do not change a curve', () => {
  const store = new MetricStore([RATE, ACCURACY, LOSS]);
  store.load({
    train: { epoch: [0.5, 1], values: { loss: [2, 1], accuracy: [0.5, null] } },
    val: { epoch: [1], values: { loss: [1.5] } },
  });
  const missed = [
    { stage: 'train', step: 2, epoch: 1, values: { loss: 1 } },
    { stage: 'train', step: 3, epoch: 1.5, values: { loss: null, learning_rate: 0.1 } },
    { stage: 'val', step: 3, epoch: 1.25, values: { loss: 1.2 } },
  ];
  store.add(missed);
  store.add(missed);
  assert.deepEqual(store.epochs, [0.5, 1, 1.25, 1.5]);
  assert.deepEqual(values(store, 'loss'), [['train', [2, 1, null, null]], ['val', [null, 1.5, 1.2, null]]]);
  assert.deepEqual(values(store, 'accuracy'), [['train', [50, null, null, null]]]);
  assert.deepEqual(values(store, 'rate'), [['train', [null, null, null, 0.1]]]);
  assert.equal(store.last('val', (name) => name === 'loss'), 1.2);
  assert.equal(store.last('val', (name) => name === 'accuracy'), null);
});

const epoch = [1, 2, 3, 4, 5, 6];
const timed = () => {
  const store = new MetricStore([LOSS]);
  const step = epoch.map((number) => 10 * number);
  store.load({ clock: 100, train: { epoch, step, seconds: [1, 2, 3, 4, 5, 9], values: { loss: epoch } } });
  return store;
};

test('an epoch has a position on each axis', () => {
  const store = timed();
  assert.deepEqual(['epoch', 'step', 'time'].map((axis) => store.positionOf(5.5, axis)), [5.5, 55, 7]);
  assert.equal(store.positionOf(9, 'step'), 60);
  assert.equal(store.positionOf(0.5, 'step'), 10);
  assert.equal(store.positionOf(4, 'time'), 4);
});

test('a row without a step or a time leaves only the axis of epochs', () => {
  const axes = (store) => ['epoch', 'step', 'time'].filter((axis) => store.has(axis));
  const old = new MetricStore([]);
  old.load({ train: { epoch: [1, 2], values: { loss: [1, 2] } } });
  assert.deepEqual(axes(timed()), ['epoch', 'step', 'time']);
  assert.deepEqual(axes(old), ['epoch']);
});

test('the time of a row starts at the clock and never decreases', () => {
  const store = timed();
  store.add([{ stage: 'train', epoch: 7, step: 70, at: 112, values: { loss: 1 } }]);
  store.add([{ stage: 'val', epoch: 7, step: 70, at: 130, values: { loss: 1 } }]);
  store.add([{ stage: 'train', epoch: 8, step: 80, at: 103, values: { loss: 1 } }]);
  assert.deepEqual(store.curves('loss', 'time').xs.slice(-3), [9, 12, 12]);
  assert.deepEqual(store.curves('loss', 'step').xs.slice(-2), [70, 80]);
});

test('metrics are on the charts on which the server draws them', () => {
  const store = new MetricStore(cases.charts);
  for (const [name, id] of Object.entries(cases.metrics)) assert.equal(store.chartOf(name).id, id);
});

test('metrics that are on no chart share one if their names start alike', () => {
  const store = new MetricStore([ACCURACY, LOSS]);
  const one = [1];
  store.load({ train: { epoch: one, values: { 'ratio/a': one, 'ratio/b': one, kl: one, Top_Accuracy: one, my_loss: one } } });
  assert.deepEqual(store.ownCharts.map(({ id }) => id), ['own-ratio', 'own-kl']);
  assert.deepEqual(store.series('own-ratio').map(({ name }) => name), ['ratio/a', 'ratio/b']);
  assert.equal(store.series('accuracy')[0].name, 'Top_Accuracy');
  assert.equal(store.series('loss')[0].name, 'my_loss');
});

test('a metric of one of several models has the title and the unit of its kind', () => {
  const map = { id: 'map', metrics: ['map'], percent: true, title: 'Average precision' };
  const models = [
    { store: new MetricStore([ACCURACY, LOSS]), titles: { accuracy: 'Accuracy' } },
    { store: new MetricStore([map, LOSS]), titles: { map50: 'mAP@50' } },
  ];
  assert.deepEqual(sharedChart(models, 'map50'), { title: 'mAP@50', chart: map });
  assert.deepEqual(sharedChart(models, 'map'), { title: 'Average precision', chart: map });
  assert.deepEqual(sharedChart(models, 'accuracy'), { title: 'Accuracy', chart: ACCURACY });
  assert.deepEqual(sharedChart(models, 'weight_norm').title, 'Weight norm');
  assert.ok(sharedChart(models, 'weight_norm').chart.isOwn);
});
