// Paints the classes of pixels over an image: with a brush, along an outline, or an area at once.

import { Changes } from './changes.js';
import { DrawingCanvas } from './drawing_canvas.js';
import { RequestError, request } from './http.js';
import { BACKGROUND, FINEST, IGNORED, Mask } from './mask.js';

const MAX_RADIUS = 500;
// The shorter side of the first image, divided by the radius of the brush.
const BRUSHES = 60;
const OPACITY = 140;
const STEP = 1.25;

export class MaskCanvas extends DrawingCanvas {
  title = 'Masks';
  tools = [
    ['brush', 'Brush', 'b', 'brush; Shift erases'],
    ['polygon', 'Outline', 'p', 'paint the inside of an outline'],
    ['fill', 'Fill', 'g', 'fill the connected pixels of the same class'],
  ];
  keys = [
    ['E', 'erase or paint', { e: () => this.toggleEraser() }],
    ['Delete', 'delete the last corner of an unfinished outline', { Delete: () => this.erase(), Backspace: () => this.erase() }],
    ['[ ]', 'size of the brush', { '[': () => this.resize(-1), ']': () => this.resize(1) }],
  ];
  tool = 'brush';
  pointer = 'crosshair';
  firstClass = BACKGROUND + 1;
  radius = 0;
  isErasing = false;
  mask = new Mask(1, 1);
  changes = new Changes((tiles) => {
    this.mask.restore(tiles);
    this.#changed();
  });

  useClasses() {
    const { classes } = this;
    if (this.class !== IGNORED) super.useClasses();
    this.colors = new Uint32Array(256);
    for (const { id, color } of classes) {
      const [red, green, blue] = color.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
      this.colors[id] = id === BACKGROUND ? 0 : ((OPACITY << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    }
    this.colors[IGNORED] = ((OPACITY << 24) | 0x808080) >>> 0;
    this.draw();
  }

  async load(entry, about) {
    const loaded = await read(entry, about);
    const { width, height } = loaded;
    this.cancel();
    this.changes.clear();
    this.mask = loaded;
    this.radius ||= Math.min(MAX_RADIUS, Math.max(FINEST, Math.min(width, height) / BRUSHES));
    this.setSize(width, height);
    this.shown();
  }

  async replace(entry, about) {
    const loaded = await read(entry, about);
    const { width, height } = this.mask;
    if (loaded.width !== width || loaded.height !== height) throw new RequestError(`The mask has ${loaded.width}×${loaded.height} pixels, but the image has ${width}×${height}.`);
    this.cancel();
    this.mask.replace(loaded);
    const change = this.mask.commit();
    if (change) this.changes.add(...change);
    this.#changed();
  }

  get value() {
    return { mask: this.mask };
  }

  #commit() {
    const change = this.mask.commit();
    if (!change) return;
    this.changes.add(...change);
    this.#changed();
  }

  #changed() {
    this.changed();
    this.shown();
    this.draw();
  }

  chooseNext(id) {
    this.isErasing = false;
    super.chooseNext(id);
  }

  toggleEraser() {
    this.isErasing = !this.isErasing;
    this.shown();
    this.draw();
  }

  /** Makes the brush larger or smaller by some steps. */
  resize(steps) {
    this.radius = Math.min(MAX_RADIUS, Math.max(FINEST, this.radius * STEP ** steps));
    this.draw();
  }

  /** Paints the inside of an outline. */
  close(ring) {
    this.mask.polygon([ring], this.#value());
    this.#commit();
  }

  get color() {
    return this.isErasing ? '#ffffff' : super.color;
  }

  #value(isErasing = this.isErasing) {
    return isErasing ? BACKGROUND : this.class;
  }

  press(at, { shiftKey }) {
    const value = this.#value(this.isErasing || shiftKey);
    if (this.tool === 'brush') return this.#paintStroke(at, value);
    if (this.tool === 'polygon') return this.drawOutline(at);
    return { drop: () => this.mask.contains(at.x, at.y) && (this.mask.fill(at.x, at.y, value), this.#commit()) };
  }

  #paintStroke(at, value) {
    let last = at;
    const paint = (to) => {
      this.mask.stroke(last, to, this.radius, value);
      last = to;
    };
    paint(at);
    return { move: paint, drop: () => this.#commit(), cancel: () => this.mask.revert() };
  }

  paint(context) {
    this.#paintMask(context);
    if (this.line) this.paintLine(context);
    if (!this.cursor || this.tool !== 'brush') return;
    context.beginPath();
    context.arc(this.cursor.x, this.cursor.y, this.radius * this.zoom.scale, 0, 2 * Math.PI);
    this.stroke(context);
  }

  /** Looks up the class below each pixel of the frame: the cost does not depend on the size of the image. */
  #paintMask(context) {
    const { mask, zoom, colors } = this;
    const { clientWidth: width, clientHeight: height } = this.frame;
    if (!width || !height) return;
    if (this.picture?.width !== width || this.picture.height !== height) {
      this.picture = new ImageData(width, height);
      this.layer = new OffscreenCanvas(width, height);
    }
    const found = new Uint32Array(this.picture.data.buffer).fill(0);
    const columns = Int32Array.from({ length: width }, (_, x) => Math.floor((x + 0.5 - zoom.x) / zoom.scale));
    for (let y = 0; y < height; y++) {
      const row = Math.floor((y + 0.5 - zoom.y) / zoom.scale);
      if (row < 0 || row >= mask.height) continue;
      for (let x = 0; x < width; x++) {
        const column = columns[x];
        if (column >= 0 && column < mask.width) found[y * width + x] = colors[mask.pixels[row * mask.width + column]];
      }
    }
    this.layer.getContext('2d').putImageData(this.picture, 0, 0);
    context.drawImage(this.layer, 0, 0, width, height);
  }
}

/** The mask of an entry: a file, or the name of one that the server has. */
async function read({ mask, rev }, { url, width, height }) {
  const file = typeof mask === 'string' ? await (await request(`${url}/mask?${rev ? `rev=${rev}` : 'proposed=1'}`)).blob() : mask;
  return file ? Mask.fromPng(file) : new Mask(width, height);
}
