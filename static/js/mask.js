// The classes of all pixels of an image, changed by spans of rows, with what each change replaced; and their PNG file.

import { crossings } from './shapes.js';

// The class of the pixels around the objects, and that of pixels which trainings ignore.
export const BACKGROUND = 0;
export const IGNORED = 255;
// Undo keeps the changed squares of this side.
const TILE = 64;
// Rows that are decoded together: all pixels of a photo as RGBA would take four times its memory.
const STRIP = 512;
// The half diagonal of a pixel: a brush of this radius always reaches the pixel below it.
export const FINEST = 0.71;

export class Mask {
  #before = new Map();

  constructor(width, height, pixels = new Uint8Array(width * height)) {
    Object.assign(this, { width, height, pixels });
  }

  at(x, y) {
    return this.pixels[Math.floor(y) * this.width + Math.floor(x)];
  }

  contains(x, y) {
    return x >= 0 && y >= 0 && x < this.width && y < this.height;
  }

  /** Sets the class of the pixels of row `y` whose centers are between two x. */
  #span(y, from, to, value) {
    const start = Math.max(0, Math.ceil(from - 0.5));
    const end = Math.min(this.width, Math.ceil(to - 0.5));
    if (start >= end || y < 0 || y >= this.height) return;
    for (let tile = Math.floor(start / TILE); tile * TILE < end; tile++) this.#keep(tile, Math.floor(y / TILE));
    this.pixels.fill(value, y * this.width + start, y * this.width + end);
  }

  #keep(column, row) {
    const key = row * Math.ceil(this.width / TILE) + column;
    if (!this.#before.has(key)) this.#before.set(key, this.#tile(key));
  }

  #rowsOf(key) {
    const columns = Math.ceil(this.width / TILE);
    const [x, y] = [(key % columns) * TILE, Math.floor(key / columns) * TILE];
    const end = Math.min(this.width, x + TILE);
    return Array.from({ length: Math.min(TILE, this.height - y) }, (_, row) => [(y + row) * this.width + x, (y + row) * this.width + end]);
  }

  #tile(key) {
    return this.#rowsOf(key).map(([start, end]) => this.pixels.slice(start, end));
  }

  /** Returns what changed since the last call as [before, after], for `restore`; null if nothing did. */
  commit() {
    const differs = ([key, rows]) => this.#rowsOf(key).some(([start], row) => rows[row].some((value, at) => value !== this.pixels[start + at]));
    const before = new Map([...this.#before].filter(differs));
    this.#before = new Map();
    return before.size ? [before, new Map([...before.keys()].map((key) => [key, this.#tile(key)]))] : null;
  }

  restore(tiles) {
    for (const [key, rows] of tiles) for (const [at, [start]] of this.#rowsOf(key).entries()) this.pixels.set(rows[at], start);
  }

  /** Takes back what changed since the last `commit`. */
  revert() {
    this.restore(this.#before);
    this.#before = new Map();
  }

  /** Sets all pixels to those of another mask of the same size. */
  replace({ pixels }) {
    const tiles = Math.ceil(this.width / TILE) * Math.ceil(this.height / TILE);
    for (let key = 0; key < tiles; key++) {
      const differs = this.#rowsOf(key).some(([start, end]) => pixels.subarray(start, end).some((value, at) => value !== this.pixels[start + at]));
      if (differs) this.#before.set(key, this.#tile(key));
    }
    this.pixels.set(pixels);
  }

  /** Paints all pixels at most `radius` from the line between two places. */
  stroke(a, b, radius, value) {
    const reach = Math.max(FINEST, radius);
    const [dx, dy] = [b.x - a.x, b.y - a.y];
    const length = Math.hypot(dx, dy) || 1;
    const [sideX, sideY] = [(-dy / length) * reach, (dx / length) * reach];
    const strip = [[a.x + sideX, a.y + sideY, b.x + sideX, b.y + sideY, b.x - sideX, b.y - sideY, a.x - sideX, a.y - sideY]];
    const bottom = Math.min(this.height - 1, Math.ceil(Math.max(a.y, b.y) + reach));
    for (let y = Math.max(0, Math.floor(Math.min(a.y, b.y) - reach)); y <= bottom; y++) {
      const ends = crossings(strip, y + 0.5);
      for (const end of [a, b]) {
        const half = Math.sqrt(reach ** 2 - (y + 0.5 - end.y) ** 2);
        if (half >= 0) ends.push(end.x - half, end.x + half);
      }
      if (ends.length) this.#span(y, Math.min(...ends), Math.max(...ends), value);
    }
  }

  /** Paints the even-odd inside of rings. */
  polygon(rings, value) {
    const rows = rings.flatMap((ring) => ring.filter((_, at) => at % 2));
    const bottom = Math.min(this.height - 1, Math.ceil(Math.max(...rows)));
    for (let y = Math.max(0, Math.floor(Math.min(...rows))); y <= bottom; y++) {
      const ends = crossings(rings, y + 0.5);
      for (let at = 0; at + 1 < ends.length; at += 2) this.#span(y, ends[at], ends[at + 1], value);
    }
  }

  /** Paints the connected pixels that have the class of the one at a place. */
  fill(x, y, value) {
    const { width, height, pixels } = this;
    const old = this.at(x, y);
    if (old === value) return;
    const open = [[Math.floor(x), Math.floor(y)]];
    while (open.length) {
      const [start, row] = open.pop();
      const base = row * width;
      if (pixels[base + start] !== old) continue;
      let [left, right] = [start, start + 1];
      while (left > 0 && pixels[base + left - 1] === old) left--;
      while (right < width && pixels[base + right] === old) right++;
      this.#span(row, left, right, value);
      for (const next of [row - 1, row + 1]) {
        if (next < 0 || next >= height) continue;
        for (let at = left; at < right; at++) if (pixels[next * width + at] === old && (at === left || pixels[next * width + at - 1] !== old)) open.push([at, next]);
      }
    }
  }

  /** Encodes the classes as a grayscale PNG file of 8 bits. */
  async toPng() {
    const { width, height, pixels } = this;
    const rows = new Uint8Array((width + 1) * height); // each row starts with its filter: none
    for (let y = 0; y < height; y++) rows.set(pixels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
    const packed = await new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream('deflate'))).arrayBuffer();
    const header = new DataView(new ArrayBuffer(13));
    header.setUint32(0, width);
    header.setUint32(4, height);
    header.setUint8(8, 8);
    const signature = new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10]);
    return new Blob([signature, chunk('IHDR', new Uint8Array(header.buffer)), chunk('IDAT', new Uint8Array(packed)), chunk('IEND', new Uint8Array())], { type: 'image/png' });
  }

  static async fromPng(blob) {
    const bitmap = await createImageBitmap(blob, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
    const { width, height } = bitmap;
    const mask = new Mask(width, height);
    const context = new OffscreenCanvas(width, Math.min(STRIP, height)).getContext('2d', { willReadFrequently: true });
    for (let top = 0; top < height; top += STRIP) {
      const count = Math.min(STRIP, height - top);
      context.drawImage(bitmap, 0, -top);
      const { data } = context.getImageData(0, 0, width, count);
      for (let at = 0; at < width * count; at++) mask.pixels[top * width + at] = data[4 * at];
    }
    bitmap.close();
    return mask;
  }
}

// The checksum of PNG chunks (ISO 3309), byte by byte.
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  return value;
});

function chunk(name, body) {
  const named = new Uint8Array(4 + body.length);
  named.set(new TextEncoder().encode(name));
  named.set(body, 4);
  const remainder = named.reduce((value, byte) => (value >>> 8) ^ REMAINDERS[(value ^ byte) & 255], 0xffffffff);
  const framed = new DataView(new ArrayBuffer(named.length + 8));
  framed.setUint32(0, body.length);
  new Uint8Array(framed.buffer).set(named, 4);
  framed.setUint32(named.length + 4, ~remainder >>> 0);
  return framed.buffer;
}
