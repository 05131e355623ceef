import assert from 'node:assert/strict';
import { test } from 'node:test';
import { area, bounds, boxBetween, contains, handles, movedBy, nearestOnOutline, simplify, withCorner, withHandle, withoutCorner } from '../../static/js/shapes.js';

const SIZE = { width: 100, height: 80 };
const HOLED = { rings: [[0, 0, 40, 0, 40, 40, 0, 40], [10, 10, 30, 10, 30, 30, 10, 30]] };

test('a box is the same from any two opposite corners, and ends at the edges of the image', () => {
  for (const [a, b] of [[[10, 20], [30, 50]], [[30, 20], [10, 50]], [[30, 50], [10, 20]]]) assert.deepEqual(boxBetween(a, b, SIZE), [10, 20, 30, 50]);
  assert.deepEqual(boxBetween([-5, 70], [120, 95], SIZE), [0, 70, 100, 80]);
});

test('each handle of a box moves its edges, and a box turned inside out remains a box', () => {
  const object = { box: [10, 10, 30, 40] };
  const moved = handles(object).map((handle) => withHandle(object, handle, 50, 60, SIZE).box);
  assert.deepEqual(moved, [[30, 40, 50, 60], [10, 40, 30, 60], [10, 40, 50, 60], [10, 10, 50, 40], [10, 10, 50, 60], [10, 10, 30, 60], [30, 10, 50, 60], [30, 10, 50, 40]]);
});

test('an object moves only as far as it stays in the image', () => {
  assert.deepEqual(movedBy({ box: [10, 10, 30, 40] }, -50, 100, SIZE), { box: [0, 50, 20, 80] });
  assert.deepEqual(bounds(movedBy(HOLED, 1000, 1000, SIZE)), [60, 40, 100, 80]);
});

test('a hole is not inside of a polygon', () => {
  assert.ok(contains(HOLED, 5, 5));
  assert.ok(!contains(HOLED, 20, 20));
  assert.ok(contains(HOLED, 12, 20, 3));
  assert.ok(!contains(HOLED, 60, 20, 3));
});

test('a corner is added on the outline and removed again; the last ring keeps three corners', () => {
  const place = nearestOnOutline(HOLED, 20, -1);
  assert.deepEqual([place.ring, place.corner, place.x, place.y, place.distance], [0, 0, 20, 0, 1]);
  const more = withCorner(HOLED, place);
  assert.deepEqual(more.rings[0], [0, 0, 20, 0, 40, 0, 40, 40, 0, 40]);
  assert.deepEqual(withoutCorner(more, { ring: 0, corner: 1 }), HOLED);
  assert.equal(withoutCorner({ rings: [[0, 0, 9, 0, 9, 9]] }, { ring: 0, corner: 1 }), null);
});

test('a line keeps the corners that matter', () => {
  assert.deepEqual(simplify([0, 0, 10, 0.2, 20, 0, 20, 10, 20, 20], 0.5), [0, 0, 20, 0, 20, 20]);
  assert.equal(area({ rings: [simplify([0, 0, 0, 0, 10, 0, 10, 10, 5, 10, 0, 10], 0)] }), 100);
});
