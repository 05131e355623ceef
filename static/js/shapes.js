// The geometry of labeled objects, in pixels of the original image. An object has a `box`, [left, top, right, bottom], or
// the `rings` of a polygon, [[x, y, x, y, …], …], whose even-odd inside belongs to it. Functions return new shapes.

// The shortest side of a box, and the smallest area of a ring.
export const SMALLEST = 1;
// The edges of a box that each of its eight handles moves, as indexes into `box`; -1 for none.
const EDGES = [[0, 1], [-1, 1], [2, 1], [2, -1], [2, 3], [-1, 3], [0, 3], [0, -1]];

const within = (value, high) => Math.min(high, Math.max(0, value));

/** The corners of a ring: [[x, y], …]. */
export const corners = (ring) => Array.from({ length: ring.length / 2 }, (_, at) => [ring[2 * at], ring[2 * at + 1]]);

/** The smallest box around an object. */
export function bounds({ box, rings }) {
  if (box) return box;
  const found = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [x, y] of rings.flatMap(corners)) {
    found[0] = Math.min(found[0], x);
    found[1] = Math.min(found[1], y);
    found[2] = Math.max(found[2], x);
    found[3] = Math.max(found[3], y);
  }
  return found;
}

/** The box between two corners, cut off at the edges of an image of size {width, height}. */
export function boxBetween([x1, y1], [x2, y2], { width, height }) {
  const [left, right] = [within(x1, width), within(x2, width)].sort((a, b) => a - b);
  const [top, bottom] = [within(y1, height), within(y2, height)].sort((a, b) => a - b);
  return [left, top, right, bottom];
}

export const isLargeEnough = ([left, top, right, bottom]) => right - left >= SMALLEST && bottom - top >= SMALLEST;

/** The box of all pixels that a smaller box touches, at least one in each direction. */
export function outerPixels([left, top, right, bottom], { width, height }) {
  const [x, y] = [Math.min(width - 1, Math.floor(left)), Math.min(height - 1, Math.floor(top))];
  return [x, y, Math.max(x + 1, Math.ceil(right)), Math.max(y + 1, Math.ceil(bottom))];
}

/** The area of a ring, by the shoelace formula. */
export function ringArea(ring) {
  const all = corners(ring);
  return Math.abs(all.reduce((sum, [x, y], at) => {
    const [nextX, nextY] = all[(at + 1) % all.length];
    return sum + x * nextY - nextX * y;
  }, 0)) / 2;
}

export function area({ box, rings }) {
  return box ? (box[2] - box[0]) * (box[3] - box[1]) : rings.reduce((sum, ring) => sum + ringArea(ring), 0);
}

/** The places that can be dragged: {x, y}, with the `edges` of a box or the `ring` and `corner` of a polygon. */
export function handles({ box, rings }) {
  if (!box) return rings.flatMap((points, ring) => corners(points).map(([x, y], corner) => ({ x, y, ring, corner })));
  const [left, top, right, bottom] = box;
  return EDGES.map((edges) => ({ edges, x: box[edges[0]] ?? (left + right) / 2, y: box[edges[1]] ?? (top + bottom) / 2 }));
}

/** An object's shape with a handle at a place. A box that is turned inside out remains a box. */
export function withHandle({ box, rings }, { edges, ring, corner }, x, y, size) {
  if (!box) {
    const moved = rings[ring].toSpliced(2 * corner, 2, within(x, size.width), within(y, size.height));
    return { rings: rings.with(ring, moved) };
  }
  const [left, top, right, bottom] = box.map((value, edge) => (edges.includes(edge) ? [x, y][edge % 2] : value));
  return { box: boxBetween([left, top], [right, bottom], size) };
}

/** An object's shape, moved as far as it stays in the image. */
export function movedBy(object, dx, dy, { width, height }) {
  const [left, top, right, bottom] = bounds(object);
  const by = [Math.min(width - right, Math.max(-left, dx)), Math.min(height - bottom, Math.max(-top, dy))];
  const moved = (points) => points.map((value, at) => value + by[at % 2]);
  return object.box ? { box: moved(object.box) } : { rings: object.rings.map(moved) };
}

/** The place on the outline of a polygon that is nearest to another one: {ring, corner before it, x, y, distance}. */
export function nearestOnOutline({ rings }, x, y) {
  let best = { distance: Infinity };
  for (const [ring, points] of rings.entries()) {
    const all = corners(points);
    for (const [corner, [x1, y1]] of all.entries()) {
      const [x2, y2] = all[(corner + 1) % all.length];
      const length = (x2 - x1) ** 2 + (y2 - y1) ** 2;
      const along = length ? within(((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length, 1) : 0;
      const place = { ring, corner, x: x1 + along * (x2 - x1), y: y1 + along * (y2 - y1) };
      place.distance = Math.hypot(place.x - x, place.y - y);
      if (place.distance < best.distance) best = place;
    }
  }
  return best;
}

/** A polygon's shape with one more corner at a place on its outline. */
export function withCorner({ rings }, { ring, corner, x, y }) {
  return { rings: rings.with(ring, rings[ring].toSpliced(2 * corner + 2, 0, x, y)) };
}

/** A polygon's shape without a corner; null if nothing would remain. A ring of three corners is removed. */
export function withoutCorner({ rings }, { ring, corner }) {
  if (rings[ring].length > 6) return { rings: rings.with(ring, rings[ring].toSpliced(2 * corner, 2)) };
  return rings.length > 1 ? { rings: rings.toSpliced(ring, 1) } : null;
}

/** Whether a place is inside an object, or at most `reach` outside. */
export function contains(object, x, y, reach = 0) {
  const [left, top, right, bottom] = bounds(object);
  if (x < left - reach || x > right + reach || y < top - reach || y > bottom + reach) return false;
  if (object.box) return true;
  return crossings(object.rings, y).filter((at) => at > x).length % 2 === 1 || nearestOnOutline(object, x, y).distance <= reach;
}

/** The x at which the outlines of rings cross a horizontal line. */
export function crossings(rings, y) {
  const found = [];
  for (const ring of rings) {
    const all = corners(ring);
    for (const [at, [x1, y1]] of all.entries()) {
      const [x2, y2] = all[(at + 1) % all.length];
      if (y1 > y !== y2 > y) found.push(x1 + ((y - y1) / (y2 - y1)) * (x2 - x1));
    }
  }
  return found.sort((a, b) => a - b);
}

/** Removes corners of a line that are closer than `tolerance` to the line without them (Ramer, Douglas and Peucker). */
export function simplify(line, tolerance) {
  const all = corners(line);
  const isKept = new Array(all.length).fill(false);
  const open = [[0, all.length - 1]];
  isKept[0] = isKept[all.length - 1] = true;
  while (open.length) {
    const [first, last] = open.pop();
    const [[x1, y1], [x2, y2]] = [all[first], all[last]];
    const length = Math.hypot(x2 - x1, y2 - y1);
    let [farthest, distance] = [-1, tolerance];
    for (let at = first + 1; at < last; at++) {
      const [x, y] = all[at];
      const away = length ? Math.abs((x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)) / length : Math.hypot(x - x1, y - y1);
      if (away > distance) [farthest, distance] = [at, away];
    }
    if (farthest < 0) continue;
    isKept[farthest] = true;
    open.push([first, farthest], [farthest, last]);
  }
  return all.filter((_, at) => isKept[at]).flat();
}
