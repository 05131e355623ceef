import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changeOf, wordsOfEntry } from '../../static/js/label_words.js';

const CLASSES = [{ name: 'cat' }, { name: 'dog' }];
const box = (id, left, top, width = 10) => ({ class: id, box: [left, top, left + width, top + 10] });
const ring = (id, ...points) => ({ class: id, rings: [points] });

const CHANGES = [
  [{ objects: [box(0, 5, 0)] }, { objects: [box(0, 0, 0)] }, '1 cat moved'],
  [{ objects: [box(0, 0, 0, 12), box(1, 0, 0)] }, { objects: [box(1, 0, 0), box(0, 0, 0)] }, '1 cat reshaped'],
  [{ objects: [box(1, 0, 0), box(1, 0, 0)] }, { objects: [box(1, 0, 0), box(0, 0, 0)] }, '+1 dog, −1 cat'],
  [{ objects: [ring(0, 1, 2, 11, 2, 1, 12)] }, { objects: [ring(0, 0, 0, 10, 0, 0, 10)] }, '1 cat moved'],
  [{ objects: [ring(0, 1, 2, 10, 0, 0, 10)] }, { objects: [ring(0, 0, 0, 10, 0, 0, 10)] }, '1 cat reshaped'],
  [{ objects: [] }, { objects: [box(0, 0, 0), box(0, 20, 0)] }, '−2 cat'],
  [{ objects: [{ ...box(0, 0, 0), from: 'm/r', score: 0.9 }] }, { objects: [box(0, 0, 0)] }, ''],
  [{ label: 1 }, { label: 0 }, '+ dog, − cat'],
  [{}, { label: 0 }, '− cat'],
  [{ labels: [0, 1] }, { labels: [1] }, '+ cat'],
  [{ numbers: { 0: 4, 1: 2 } }, { numbers: { 0: 3 } }, 'cat 3 → 4, dog – → 2'],
  [{ mask: '0-2.png', labels: [0, 1] }, { mask: '0-1.png', labels: [0] }, '+ dog'],
  [{ mask: '0-2.png', labels: [0] }, { mask: '0-1.png', labels: [0] }, 'repainted'],
  [{ mask: '0-1.png', labels: [0] }, { mask: '0-1.png', labels: [0] }, ''],
];

test('an entry is described by what it changed', () => {
  for (const [entry, before, words] of CHANGES) assert.equal(changeOf(entry, before, CLASSES), words);
});

test('an entry is its state and what it contains', () => {
  assert.equal(wordsOfEntry({ state: 'labeled', objects: [box(0, 0, 0), box(0, 1, 1)] }, CLASSES), 'Labeled, 2 objects: cat.');
  assert.equal(wordsOfEntry({ state: 'skipped' }, CLASSES), 'Skipped.');
});
