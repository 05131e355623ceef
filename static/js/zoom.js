// Zooming and panning of an image in a frame: wheel, buttons, keys, dragging, and two fingers.

const STEP = 1.5;
const MAX_SCALE = 40;
// From this scale on, the pixels of an image are drawn as squares.
const SHARP = 2;

export class Zoom {
  /**
   * Zooms `content`, whose size in pixels at scale 1 `setSize` defines, in `frame`. Calls `changed` with the scale. Unless
   * it `isDragged`, somebody else decides what pointers do.
   */
  constructor(frame, content, changed, { isDragged = true } = {}) {
    Object.assign(this, { frame, content, changed, width: 1, height: 1, fit: 1 });
    this.pointers = new Map();
    frame.addEventListener('wheel', (event) => this.#wheel(event), { passive: false });
    new ResizeObserver(() => this.isFit && this.reset()).observe(frame);
    if (!isDragged) return;
    frame.addEventListener('pointerdown', (event) => this.#down(event));
    frame.addEventListener('pointermove', (event) => this.#move(event));
    for (const name of ['pointerup', 'pointercancel']) frame.addEventListener(name, ({ pointerId }) => this.pointers.delete(pointerId));
    frame.addEventListener('dblclick', (event) => this.zoom(this.scale > this.fit ? this.fit / this.scale : 4, this.placeOf(event)));
  }

  get isFit() {
    return this.scale === this.fit;
  }

  setSize(width, height) {
    Object.assign(this, { width, height });
    this.reset();
  }

  /** Fits the content into the frame. Small images are scaled by integers, so that all pixels have the same size. */
  reset() {
    const { clientWidth, clientHeight } = this.frame;
    const scale = Math.min(clientWidth / this.width, clientHeight / this.height);
    this.fit = this.scale = scale >= SHARP ? Math.floor(scale) : scale;
    this.x = (clientWidth - this.width * this.scale) / 2;
    this.y = (clientHeight - this.height * this.scale) / 2;
    this.#draw();
  }

  /** Zooms by `factor`; `place`, by default the center of the frame, stays where it is. */
  zoom(factor, place = { x: this.frame.clientWidth / 2, y: this.frame.clientHeight / 2 }) {
    const scale = Math.min(MAX_SCALE, Math.max(this.fit, this.scale * factor));
    if (scale === this.fit) {
      this.reset();
      return;
    }
    const real = scale / this.scale;
    this.x = place.x - (place.x - this.x) * real;
    this.y = place.y - (place.y - this.y) * real;
    this.scale = scale;
    this.#draw();
  }

  in() {
    this.zoom(STEP);
  }

  out() {
    this.zoom(1 / STEP);
  }

  pan(x, y) {
    if (this.isFit) return;
    this.x += x;
    this.y += y;
    this.#draw();
  }

  #draw() {
    const { style } = this.content;
    const clamp = (at, inside, size) => (size <= inside ? (inside - size) / 2 : Math.min(0, Math.max(inside - size, at)));
    this.x = Math.round(clamp(this.x, this.frame.clientWidth, this.width * this.scale));
    this.y = Math.round(clamp(this.y, this.frame.clientHeight, this.height * this.scale));
    style.width = `${this.width * this.scale}px`;
    style.height = `${this.height * this.scale}px`;
    style.transform = `translate(${this.x}px, ${this.y}px)`;
    this.frame.classList.toggle('is-zoomed', !this.isFit);
    this.content.classList.toggle('pixelated', this.scale >= SHARP);
    this.changed(this.scale);
  }

  /** Moves and zooms with a finger that moves from a place to another while a second one stays. */
  pinch(before, now, other) {
    const distance = (place) => Math.hypot(place.x - other.x, place.y - other.y) || 1;
    this.zoom(distance(now) / distance(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
  }

  /** The place of a pointer in pixels of the frame. */
  placeOf({ clientX, clientY }) {
    const { left, top } = this.frame.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  #wheel(event) {
    event.preventDefault();
    this.zoom(1.0015 ** -event.deltaY, this.placeOf(event));
  }

  #down(event) {
    if (event.button || event.target.closest('button, a')) return;
    this.frame.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.placeOf(event));
  }

  #move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.placeOf(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (other) this.pinch(before, now, other);
    else this.pan(now.x - before.x, now.y - before.y);
  }
}
