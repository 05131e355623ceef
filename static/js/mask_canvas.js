// Paints the classes of pixels over an image: with a brush, along an outline, or an area at once.

import { Changes } from './changes.js';
import { ImageCanvas } from './image_canvas.js';
import { BACKGROUND, FINEST, IGNORED, Mask } from './mask.js';
import { corners, simplify } from './shapes.js';

const MAX_RADIUS = 500;
// The shorter side of the first image, divided by the radius of the brush.
const BRUSHES = 60;
const OPACITY = 140;

export class MaskCanvas extends ImageCanvas {
  changes = new Changes((tiles) => {
    this.mask.restore(tiles);
    this.#changed();
  });

  /** `classes` are [{id, name, color}, …]. Calls `changed` after changes of pixels, and `shown` when tool or class change. */
  constructor(frame, image, { classes, changed, shown }) {
    super(frame, image);
    Object.assign(this, { classes, changed, shown, class: IGNORED + 1, tool: 'brush', radius: 0, isErasing: false, mask: new Mask(1, 1), line: null });
    this.useClasses();
    this.canvas.addEventListener('dblclick', () => this.finish());
  }

  pointer = 'crosshair';

  /** Takes over changed classes: another one is chosen instead of a deleted one. */
  useClasses() {
    const { classes } = this;
    if (this.class !== IGNORED && (classes[this.class]?.is_deleted ?? true)) this.class = classes.find(({ id, is_deleted: isDeleted }) => id !== BACKGROUND && !isDeleted)?.id ?? BACKGROUND;
    this.colors = new Uint32Array(256);
    for (const { id, color } of classes) {
      const [red, green, blue] = color.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
      this.colors[id] = id === BACKGROUND ? 0 : ((OPACITY << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    }
    this.colors[IGNORED] = ((OPACITY << 24) | 0x808080) >>> 0;
    this.draw();
  }

  /** Shows the mask of another image; null for one without labels. */
  load(mask, width, height) {
    this.cancel();
    this.changes.clear();
    this.mask = mask ?? new Mask(width, height);
    this.radius ||= Math.min(MAX_RADIUS, Math.max(FINEST, Math.min(width, height) / BRUSHES));
    this.setSize(width, height);
    this.shown();
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

  setClass(id) {
    Object.assign(this, { class: id, isErasing: false });
    this.shown();
  }

  toggleEraser() {
    this.isErasing = !this.isErasing;
    this.shown();
    this.draw();
  }

  resize(factor) {
    this.radius = Math.min(MAX_RADIUS, Math.max(FINEST, this.radius * factor));
    this.draw();
  }

  /** Drops what is being drawn; returns whether there was anything. */
  cancel() {
    const wasDrawing = Boolean(this.line);
    this.line = null;
    super.cancel();
    return wasDrawing;
  }

  /** Removes the last corner of an unfinished outline. */
  erase() {
    if (this.line?.length > 2) this.line.splice(-2);
    else this.cancel();
    this.draw();
  }

  /** Paints the inside of an unfinished outline; returns whether there was one. */
  finish() {
    if (!this.line) return false;
    const ring = simplify(this.line, 0);
    this.line = null;
    if (ring.length >= 6) this.mask.polygon([ring], this.#value());
    this.#commit();
    this.draw();
    return true;
  }

  #value(isErasing = this.isErasing) {
    return isErasing ? BACKGROUND : this.class;
  }

  press(at, { shiftKey }) {
    const value = this.#value(this.isErasing || shiftKey);
    if (this.tool === 'brush') return this.#paintStroke(at, value);
    if (this.tool === 'polygon') return this.#drawOutline(at);
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

  #drawOutline(at) {
    const line = (this.line ??= []);
    const [x, y] = line;
    if (line.length >= 6 && this.distance(at, x, y) < 10) return { drop: () => this.finish() };
    const start = line.length;
    const add = (to) => line.push(to.x, to.y);
    add(at);
    return {
      move: add,
      drop: (end, isMoved) => isMoved && line.length >= 6 && this.distance(end, line[0], line[1]) < 10 && this.finish(),
      cancel: () => (line.splice(start), start || (this.line = null)),
    };
  }

  paint(context) {
    this.#paintMask(context);
    context.strokeStyle = '#ffffff';
    context.lineWidth = 2;
    if (this.line) {
      context.beginPath();
      for (const [at, [x, y]] of corners(this.line).entries()) context[at ? 'lineTo' : 'moveTo'](...this.toFrame(x, y));
      if (this.cursor && !this.isDragging) context.lineTo(this.cursor.x, this.cursor.y);
      this.#stroke(context);
    }
    if (!this.cursor || this.tool !== 'brush') return;
    context.beginPath();
    context.arc(this.cursor.x, this.cursor.y, this.radius * this.zoom.scale, 0, 2 * Math.PI);
    this.#stroke(context);
  }

  #stroke(context) {
    for (const [style, width] of [['rgb(0 0 0 / 55%)', 4], [this.isErasing ? '#ffffff' : (this.classes[this.class]?.color ?? '#808080'), 2]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.stroke();
    }
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
