// Changes of records: combined, sent to the server in order, and sent again after an error.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

globalThis.document = { querySelector: () => null };
const { RecordEdits } = await import('../../static/js/record_edits.js');

let sent;
let isBroken;

beforeEach(() => {
  sent = [];
  isBroken = false;
  globalThis.fetch = async (url, { body }) => {
    if (isBroken) throw new TypeError('no connection');
    sent.push(JSON.parse(body.get('changes')));
    return new Response('{}', { headers: { 'Content-Type': 'application/json' } });
  };
});

test('changes of a record are combined, and the latest of a kind counts', async () => {
  const edits = new RecordEdits({}, '/edits');
  edits.apply(['train/1', 'train/2'], { label: 1 });
  edits.apply(['train/1'], { split: 'val' });
  edits.apply(['train/2'], { exclude: true });
  edits.apply(['train/3'], { labels: { 0: true } });
  edits.apply(['train/3'], { labels: { 1: false } });
  await edits.saved;
  assert.deepEqual(edits.changes, {
    'train/1': { label: 1, split: 'val' },
    'train/2': { exclude: true },
    'train/3': { labels: { 0: true, 1: false } },
  });
  assert.equal(edits.words, '1 image excluded, 2 images relabeled, 1 image moved');
  assert.deepEqual(Object.assign({}, ...sent), edits.changes);
});

test('what changes nothing is removed', async () => {
  const edits = new RecordEdits({ 'val/5': { exclude: true } }, '/edits');
  edits.apply(['train/1'], { split: 'train' });
  edits.apply(['val/5'], null);
  await edits.saved;
  assert.deepEqual(edits.changes, {});
  assert.deepEqual(Object.assign({}, ...sent), { 'train/1': null, 'val/5': null });
  edits.apply(['val/5'], { exclude: true });
  edits.clear();
  assert.equal(edits.count, 0);
});

test('changes that could not be sent are sent with the next ones', async () => {
  const failures = [];
  const edits = new RecordEdits({}, '/edits', (error) => failures.push(error.message));
  isBroken = true;
  edits.apply(['train/1'], { exclude: true });
  await edits.saved;
  assert.equal(failures.length, 1);
  isBroken = false;
  edits.apply(['train/2'], { exclude: true });
  await edits.saved;
  assert.deepEqual(sent, [{ 'train/1': { exclude: true }, 'train/2': { exclude: true } }]);
});
