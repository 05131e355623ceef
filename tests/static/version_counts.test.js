// The number of images in each split of a version.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { countsAfter } from '../../static/js/version_counts.js';

const counts = { train: 75, val: 25 };
const same = { keep: 100, val: null, test: null };

test('excluded and moved images change the splits that they leave and enter', () => {
  const edits = { exclude: [['train', 0], ['val', 3]], move: [['train', 1, 'test']] };
  assert.deepEqual(countsAfter(counts, edits, same), { train: 73, val: 24, test: 1 });
});

test('new splits divide all images before some are kept', () => {
  assert.deepEqual(countsAfter(counts, {}, { ...same, test: 10 }), { train: 90, val: 0, test: 10 });
  assert.deepEqual(countsAfter(counts, {}, { keep: 50, val: 20, test: 10 }), { train: 35, val: 10, test: 5 });
  assert.deepEqual(countsAfter(counts, {}, same), { train: 75, val: 25, test: 0 });
});
