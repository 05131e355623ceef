import assert from 'node:assert/strict';
import { test } from 'node:test';
import { smoothed } from '../../static/js/smoothing.js';

test('a constant curve stays the same from its first value on', () => {
  for (const value of smoothed([2, 2, 2], 0.9)) assert.ok(Math.abs(value - 2) < 1e-12);
});

test('a gap stays one and has no weight', () => {
  const [first, gap, last] = smoothed([0, null, 4], 0.5);
  assert.deepEqual([first, gap], [0, null]);
  assert.ok(Math.abs(last - (4 * 0.5) / 0.75) < 1e-12);
});

test('without weight, nothing changes', () => assert.deepEqual(smoothed([1, 5], 0), [1, 5]));
