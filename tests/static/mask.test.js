import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inflateSync } from 'node:zlib';
import { Changes } from '../../static/js/changes.js';
import { Mask, BACKGROUND } from '../../static/js/mask.js';

const count = ({ pixels }, value) => pixels.filter((pixel) => pixel === value).length;

test('the finest brush paints the pixel below it', () => {
  for (const [x, y] of [[3.01, 4.99], [3.5, 4.5], [0, 0], [9.99, 9.99]]) {
    const mask = new Mask(10, 10);
    mask.stroke({ x, y }, { x, y }, 0.5, 2);
    assert.equal(mask.at(x, y), 2);
    assert.ok(count(mask, 2) <= 4);
  }
});

test('a stroke is as wide as its brush along its whole length', () => {
  const mask = new Mask(100, 40);
  mask.stroke({ x: 20, y: 20 }, { x: 80, y: 20 }, 5, 1);
  for (let x = 20; x < 80; x++) assert.equal(mask.pixels.filter((value, at) => value === 1 && at % 100 === x).length, 10);
  assert.ok(Math.abs(count(mask, 1) - (60 * 10 + Math.PI * 25)) < 12);
});

test('an outline paints its even-odd inside', () => {
  const mask = new Mask(50, 50);
  mask.polygon([[5, 5, 45, 5, 45, 45, 5, 45], [15, 15, 35, 15, 35, 35, 15, 35]], 3);
  assert.equal(count(mask, 3), 40 * 40 - 20 * 20);
});

test('an area ends at other classes', () => {
  const mask = new Mask(30, 30);
  mask.stroke({ x: 0, y: 15 }, { x: 30, y: 15 }, 1, 1);
  mask.fill(3, 3, 2);
  assert.equal(count(mask, 2), 30 * 14);
  assert.equal(mask.at(3, 29), BACKGROUND);
});

test('undo and redo restore all pixels', () => {
  const mask = new Mask(200, 150);
  const changes = new Changes((tiles) => mask.restore(tiles));
  const states = [mask.pixels.slice()];
  const edits = [() => mask.stroke({ x: -10, y: 5 }, { x: 190, y: 140 }, 12, 1), () => mask.fill(0, 149, 2), () => mask.polygon([[150, 10, 230, 70, 120, 60]], 3)];
  for (const edit of edits) {
    edit();
    changes.add(...mask.commit());
    states.push(mask.pixels.slice());
  }
  for (const state of states.slice(0, -1).reverse()) {
    changes.undo();
    assert.deepEqual(mask.pixels, state);
  }
  for (const state of states.slice(1)) {
    changes.redo();
    assert.deepEqual(mask.pixels, state);
  }
  assert.equal(mask.commit(), null);
  // Nor is it a change to paint pixels with the class that they have, or all pixels with their own.
  mask.polygon([[150, 10, 230, 70, 120, 60]], 3);
  mask.replace(mask);
  assert.equal(mask.commit(), null);
});

test('the file is a grayscale PNG with the classes as values', async () => {
  const mask = new Mask(7, 5, Uint8Array.from({ length: 35 }, (_, at) => at * 7));
  const file = Buffer.from(await (await mask.toPng()).arrayBuffer());
  assert.equal(file.toString('latin1', 1, 4), 'PNG');
  assert.deepEqual([file.readUInt32BE(16), file.readUInt32BE(20), file[24], file[25]], [7, 5, 8, 0]);
  const rows = inflateSync(file.subarray(file.indexOf('IDAT') + 4));
  for (let y = 0; y < 5; y++) assert.deepEqual(rows.subarray(y * 8, y * 8 + 8), Buffer.from([0, ...mask.pixels.subarray(y * 7, y * 7 + 7)]));
});
