// A canvas over a zoomed image, and what pointers do on it: one draws, two zoom, the right button or the Space key pans.

import { element } from './element.js';
import { Zoom } from './zoom.js';

// In pixels of the page: a pointer that moves farther drags, and does not click.
const DRAG_DISTANCE = 4;

/**
 * Subclasses are what people label. `load(entry, about)` shows an entry of the log or a proposal, and `replace(entry, about)`
 * does so as one change of the image, which can be undone; `value` is what is posted;
 * `choose(id)` applies a class, `chosen` are those to mark, and `classKeys` their keys. `missing` says what an answer lacks.
 * `tools` are [name, title, key, what it does], and `keys` [[keys in words, what they do, {key: act}]].
 *
 * `press(at, event)` returns the drag that starts when a pointer goes down: {move(at), drop(at, isMoved), cancel()};
 * `paint(context)` draws in pixels of the frame; `at` is {x, y} in pixels of the image. `changes` can be undone.
 */
export class ImageCanvas {
  #pointers = new Map();
  #drag = null;
  #frameRequest = null;

  tools = [];
  keys = [];

  /** `classes` are those of the job by id, deleted ones included. Calls `changed` after changes, and `shown` after others. */
  constructor(frame, image, { classes, changed, shown }) {
    Object.assign(this, { frame, image, classes, changed, shown, size: { width: 1, height: 1 }, cursor: null, pointerType: 'mouse', isPanning: false, isLocked: false, isHidden: false });
    this.canvas = element('canvas');
    frame.append(this.canvas);
    this.context = this.canvas.getContext('2d');
    this.zoom = new Zoom(frame, image, () => this.draw(), { isDragged: false });
    const { canvas } = this;
    canvas.addEventListener('pointerdown', (event) => this.#down(event));
    canvas.addEventListener('pointermove', (event) => this.#move(event));
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener('pointerleave', () => this.#hover(null));
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
  }

  setSize(width, height) {
    this.size = { width, height };
    this.zoom.setSize(width, height);
  }

  /** A place in the frame as {x, y} in pixels of the image. */
  toImage({ x, y }) {
    return { x: (x - this.zoom.x) / this.zoom.scale, y: (y - this.zoom.y) / this.zoom.scale };
  }

  /** A place in the image as [x, y] in pixels of the frame. */
  toFrame(x, y) {
    return [this.zoom.x + x * this.zoom.scale, this.zoom.y + y * this.zoom.scale];
  }

  /** The distance in pixels of the frame between two places in the image. */
  distance(at, x, y) {
    return Math.hypot(at.x - x, at.y - y) * this.zoom.scale;
  }

  /** Takes over changed classes. */
  useClasses() {}

  get isDragging() {
    return Boolean(this.#drag);
  }

  /** Cancels the current drag. */
  stop() {
    this.#drag?.cancel?.();
    this.#drag = null;
    this.draw();
  }

  cancel() {
    this.stop();
  }

  setTool(tool) {
    this.cancel();
    this.tool = tool;
    this.shown();
  }

  #down(event) {
    if (this.isLocked) return;
    const place = this.zoom.placeOf(event);
    this.pointerType = event.pointerType;
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, place);
    if (this.#pointers.size > 1) this.stop(); // A second finger zooms: the drag of the first one was not meant.
    else if (event.button || this.isPanning) this.#drag = { pans: true };
    else this.#drag = { ...this.press(this.toImage(place), event), start: place };
    this.draw();
  }

  #move(event) {
    const now = this.zoom.placeOf(event);
    const before = this.#pointers.get(event.pointerId);
    if (event.pointerType !== 'touch') this.#hover(now);
    if (!before) return;
    this.#pointers.set(event.pointerId, now);
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    const drag = this.#drag;
    if (other) this.zoom.pinch(before, now, other);
    else if (drag?.pans) this.zoom.pan(now.x - before.x, now.y - before.y);
    else if (drag) {
      drag.isMoved ||= Math.hypot(now.x - drag.start.x, now.y - drag.start.y) >= DRAG_DISTANCE;
      // The browser unites the moves of a fast pen in one event for each frame.
      const all = event.getCoalescedEvents?.() ?? [];
      if (drag.isMoved) for (const moved of all.length ? all : [event]) drag.move?.(this.toImage(this.zoom.placeOf(moved)));
    }
    this.draw();
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    const drag = this.#drag;
    if (this.#pointers.size || !drag) return;
    this.#drag = null;
    if (event.type === 'pointercancel') drag.cancel?.();
    else drag.drop?.(this.toImage(this.zoom.placeOf(event)), Boolean(drag.isMoved));
    this.draw();
  }

  #hover(place) {
    this.cursor = place;
    this.draw();
  }

  /** Paints in the next frame. */
  draw() {
    this.#frameRequest ??= requestAnimationFrame(() => {
      this.#frameRequest = null;
      const ratio = window.devicePixelRatio || 1;
      const { clientWidth, clientHeight } = this.frame;
      const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
      if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.context.clearRect(0, 0, clientWidth, clientHeight);
      if (!this.isHidden) this.paint(this.context);
      this.canvas.style.cursor = this.isPanning ? 'grab' : this.pointer;
    });
  }
}
