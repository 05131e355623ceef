// Drawing over an image, in the class of what is drawn next: what boxes, polygons and masks have in common.

import { ImageCanvas } from './image_canvas.js';
import { corners, simplify } from './shapes.js';

// In pixels of the page, for fingers and for finer pointers.
export const REACH = { touch: 22, pen: 10, mouse: 7 };
export const HALO = 'rgb(0 0 0 / 55%)';

/** Subclasses add `close(ring)`, which uses an outline, and `firstClass`, the lowest id of a class to draw. */
export class DrawingCanvas extends ImageCanvas {
  classKeys = [...'1234567890'];
  class = -1;
  // The unfinished outline: x and y of its corners in turn.
  line = null;
  // In pixels of the page: a freehand outline may differ by this distance from the way of the pointer.
  tolerance = 0;

  constructor(frame, image, options) {
    super(frame, image, options);
    this.canvas.addEventListener('dblclick', () => this.finish());
  }

  /** Takes over changed classes: another one is chosen instead of a deleted one. */
  useClasses() {
    if (this.classes[this.class]?.is_deleted ?? true) this.class = this.classes.find(({ id, is_deleted: isDeleted }) => id >= this.firstClass && !isDeleted)?.id ?? 0;
    this.draw();
  }

  get chosen() {
    return [this.class];
  }

  /** Chooses the class of what is drawn from now on. */
  chooseNext(id) {
    this.class = id;
    this.shown();
  }

  choose(id) {
    this.chooseNext(id);
  }

  get color() {
    return this.classes[this.class]?.color ?? '#808080';
  }

  /** Drops what is being drawn; returns whether there was anything. */
  cancel() {
    const wasDrawing = Boolean(this.line);
    this.line = null;
    super.cancel();
    return wasDrawing;
  }

  /** Removes the last corner of an unfinished outline; returns whether there is one. */
  erase() {
    if (!this.line) return false;
    if (this.line.length > 2) this.line.splice(-2);
    else this.cancel();
    this.draw();
    return true;
  }

  /** Closes an unfinished outline; returns whether there was one. */
  finish() {
    if (!this.line) return false;
    const ring = simplify(this.line, 0);
    this.line = null;
    if (ring.length >= 6) this.close(ring);
    this.draw();
    return true;
  }

  /** Corners are clicked, or the outline is drawn freehand. */
  drawOutline(at) {
    const line = (this.line ??= []);
    if (this.#isAtStart(at)) return { drop: () => this.finish() };
    const start = line.length;
    const add = ({ x, y }) => line.push(Math.min(this.size.width, Math.max(0, x)), Math.min(this.size.height, Math.max(0, y)));
    add(at);
    return {
      move: add,
      drop: (end, isMoved) => {
        if (!isMoved) return;
        line.push(...simplify(line.splice(start), this.tolerance / this.zoom.scale));
        if (this.#isAtStart(end)) this.finish();
      },
      cancel: () => (line.splice(start), start || (this.line = null)),
    };
  }

  #isAtStart(at) {
    return this.line.length >= 6 && this.distance(at, this.line[0], this.line[1]) <= REACH[this.pointerType];
  }

  /** Adds lines between places in the image to the path of `context`. */
  trace(context, points) {
    for (const [at, [x, y]] of corners(points).entries()) context[at ? 'lineTo' : 'moveTo'](...this.toFrame(x, y));
  }

  paintLine(context) {
    context.beginPath();
    this.trace(context, this.line);
    if (this.cursor && !this.isDragging) context.lineTo(this.cursor.x, this.cursor.y);
    this.stroke(context);
  }

  /** Strokes the path with dark edges, so that it can be seen on any image. */
  stroke(context, color = this.color, width = 2) {
    for (const [style, size] of [[HALO, width + 2], [color, width]]) {
      context.strokeStyle = style;
      context.lineWidth = size;
      context.stroke();
    }
  }
}
