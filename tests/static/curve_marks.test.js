import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allMarks, markWords, marksNear } from '../../static/js/curve_marks.js';
import { MetricStore } from '../../static/js/metrics.js';

function withRates(rates) {
  const store = new MetricStore([{ id: 'rate', metrics: ['learning_rate'] }]);
  store.load({ train: { epoch: rates.map((_, row) => row + 1), values: { learning_rate: rates } } });
  return store;
}

test('a step of the learning rate is a mark at the first epoch with the new rate', () => {
  const marks = allMarks([{ kind: 'best', epoch: 6, text: 'x' }], withRates([0.1, 0.1, 0.1, 0.01, 0.01, 0.01]));
  assert.deepEqual(marks, [{ kind: 'rate', epoch: 4, text: '0.1 → 0.01' }, { kind: 'best', epoch: 6, text: 'x' }]);
  assert.deepEqual(marks.map(markWords), ['Learning rate: 0.1 → 0.01', 'Best snapshot: x']);
});

test('rows without a rate are no steps', () => {
  assert.equal(allMarks([], withRates([0.1, null, 0.1, null, 0.2, 0.2])).length, 1);
});

test('a rate that always changes, or changes very often, has no marks', () => {
  assert.deepEqual(allMarks([], withRates([6, 5, 4, 3, 2, 1])), []);
  assert.deepEqual(allMarks([], withRates(Array.from({ length: 120 }, (_, row) => Math.floor(row / 2)))), []);
});

test('an unknown kind of mark is not drawn', () => {
  assert.deepEqual(allMarks([{ kind: 'unknown', epoch: 1, text: '' }], new MetricStore([])), []);
});

test('the marks near the cursor are within a few pixels, on both sides', () => {
  const plot = { cursor: { left: 100 }, valToPos: (at) => at };
  const at = (marks) => marks.map((mark) => mark.at);
  assert.deepEqual(at(marksNear(plot, [{ at: 92 }, { at: 93 }, { at: 107 }, { at: 108 }])), [93, 107]);
  assert.deepEqual(marksNear({ ...plot, cursor: { left: -10 } }, [{ at: -10 }]), []);
});
