// Draws boxes and polygons over an image, and changes them.

import { Changes } from './changes.js';
import { DrawingCanvas, HALO, REACH } from './drawing_canvas.js';
import { uniqueName } from './http.js';
import { area, bounds, boxBetween, contains, handles, isLargeEnough, movedBy, nearestOnOutline, outerPixels, ringArea, SMALLEST, withCorner, withHandle, withoutCorner } from './shapes.js';

// In pixels of the page, for fingers and for finer pointers.
const HANDLE = { touch: 9, pen: 5, mouse: 4 };
// A pixel of the image that is so large on the page can be seen.
const PIXEL = 4;
// Smaller objects get no name, and neither do those of a crowd.
const NAMED_SIDE = 18;
const CROWD = 300;
const NUDGES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class ObjectCanvas extends DrawingCanvas {
  title = 'Boxes and polygons';
  tools = [
    ['box', 'Box', 'b', 'box: drag it, or click two corners'],
    ['polygon', 'Polygon', 'p', 'polygon: click its corners or draw its outline; Enter closes it'],
    ['select', 'Select', 'v', 'select, move and reshape; Ctrl does the same with other tools'],
  ];
  keys = [
    ['N', 'new box in the middle of what is visible', { n: () => this.addInMiddle() }],
    ['. ,', 'next and previous object', { '.': () => this.step(1), ',': () => this.step(-1) }],
    ['Shift+arrows', 'move the selected object by one pixel', Object.fromEntries(Object.entries(NUDGES).map(([arrow, by]) => [`Shift+${arrow}`, () => this.nudge(...by)]))],
    ['Delete', 'delete the selected object or corner, or the last corner of an unfinished polygon', { Delete: () => this.erase(), Backspace: () => this.erase() }],
  ];
  tool = 'box';
  firstClass = 0;
  tolerance = 1.5;
  objects = [];
  selectedId = null;
  corner = null;
  anchor = null;
  dragged = null;
  // The objects that stay while one is dragged, painted once.
  #still = null;
  changes = new Changes((state) => this.#set(state));

  get chosen() {
    return [this.selected?.class ?? this.class];
  }

  get selected() {
    return this.objects.find(({ id }) => id === this.selectedId) ?? null;
  }

  get pointer() {
    return this.tool === 'select' ? 'default' : 'crosshair';
  }

  load({ objects = [] }, { width, height }) {
    this.cancel();
    this.changes.clear();
    this.#show({ objects: named(objects), selectedId: null });
    this.setSize(width, height);
  }

  replace({ objects = [] }) {
    this.cancel();
    this.#commit(named(objects), null);
  }

  /** The objects without what only this page needs. */
  get value() {
    return { objects: this.objects.map(({ id, ...object }) => object) };
  }

  // Changes. Each replaces the list of objects, which are never modified, and is one step to undo.

  #commit(objects, selectedId = this.selectedId) {
    const { objects: before, selectedId: selected } = this;
    this.changes.add({ objects: before, selectedId: selected }, { objects, selectedId });
    this.#set({ objects, selectedId });
  }

  #set(state) {
    this.#show(state);
    this.changed();
  }

  #show(state) {
    Object.assign(this, state, { corner: null });
    this.shown();
    this.draw();
  }

  add(shape) {
    const object = { id: uniqueName(), class: this.class, ...rounded(shape) };
    this.#commit([...this.objects, object], object.id);
  }

  /** Adds a box without a pointer: half as wide and high as what is visible of the image. */
  addInMiddle() {
    const { clientWidth: width, clientHeight: height } = this.frame;
    const ends = [{ x: width / 4, y: height / 4 }, { x: (3 * width) / 4, y: (3 * height) / 4 }];
    const [from, to] = ends.map((place) => this.toImage(place));
    const box = boxBetween([from.x, from.y], [to.x, to.y], this.size);
    if (isLargeEnough(box)) this.add({ box });
  }

  /** Adds copies of objects, such as those of another image. */
  paste(objects) {
    const copies = objects.map((object) => ({ ...movedBy(object, 0, 0, this.size), class: object.class, id: uniqueName() }));
    if (copies.length) this.#commit([...this.objects, ...copies]);
  }

  /** Changes an object, unless the values are its own. What a model proposed becomes a person's. */
  change(object, values) {
    const { from, score, ...own } = object;
    const changed = { ...own, ...rounded(values) };
    if (JSON.stringify(changed) === JSON.stringify(own)) return;
    this.#commit(this.objects.map((other) => (other.id === object.id ? changed : other)));
  }

  remove(object) {
    this.#commit(this.objects.filter((other) => other !== object), null);
  }

  /** Chooses the class of the selected object, and of those drawn from now on. */
  choose(id) {
    super.choose(id);
    const { selected } = this;
    if (selected && selected.class !== id) this.change(selected, { class: id });
  }

  nudge(dx, dy) {
    const { selected } = this;
    if (selected) this.change(selected, movedBy(selected, dx, dy, this.size));
  }

  /** Removes the last corner of an unfinished polygon, the chosen corner, or the selected object. */
  erase() {
    const { selected, corner } = this;
    if (super.erase()) return;
    if (this.anchor) this.cancel();
    else if (selected && corner) {
      const shape = withoutCorner(selected, corner);
      if (shape) this.change(selected, shape);
    } else if (selected) this.remove(selected);
    this.draw();
  }

  select(object) {
    this.#show({ selectedId: object?.id ?? null });
  }

  /** Selects the next object in reading order, or the previous one. */
  step(by) {
    const order = this.objects.toSorted((a, b) => bounds(a)[1] - bounds(b)[1] || bounds(a)[0] - bounds(b)[0]);
    if (order.length) this.select(order.at((order.indexOf(this.selected) + (this.selected || by > 0 ? by : 0)) % order.length));
  }

  /** Drops what is being drawn; returns whether there was anything. */
  cancel() {
    const wasDrawing = Boolean(this.anchor || this.dragged);
    this.anchor = this.dragged = this.#still = null;
    return super.cancel() || wasDrawing;
  }

  close(ring) {
    if (ringArea(ring) >= SMALLEST) this.add({ rings: [ring] });
  }

  // Pointers

  press(at, { ctrlKey, metaKey, altKey, pointerType }) {
    const handle = this.#handleAt(at);
    if (handle) return this.#dragHandle(handle, altKey);
    if (this.tool === 'select' || ctrlKey || metaKey) return this.#dragObject(at, pointerType);
    return this.tool === 'polygon' ? this.drawOutline(at) : this.#drawBox(at);
  }

  #dragHandle(handle, isRemoved) {
    const { selected } = this;
    this.corner = handle.edges ? null : handle;
    if (isRemoved && this.corner) return { drop: () => this.erase() };
    return this.#dragTo(selected, (at) => withHandle(selected, handle, at.x, at.y, this.size));
  }

  #dragObject(at, pointerType) {
    const object = this.#objectAt(at);
    this.select(object);
    if (object) return this.#dragTo(object, (now) => movedBy(object, now.x - at.x, now.y - at.y, this.size));
    return { pans: pointerType !== 'mouse' };
  }

  #dragTo(object, shapeAt) {
    return {
      move: (at) => {
        this.dragged = { ...object, ...shapeAt(at) };
      },
      drop: (at, isMoved) => {
        this.dragged = this.#still = null;
        if (isMoved) this.change(object, shapeAt(at));
      },
      cancel: () => (this.dragged = this.#still = null),
    };
  }

  /** A box is dragged, or its corners are clicked. */
  #drawBox(at) {
    const isSecond = Boolean(this.anchor);
    this.anchor ??= at;
    const end = (corner) => {
      const drawn = boxBetween([this.anchor.x, this.anchor.y], [corner.x, corner.y], this.size);
      // A drag inside of a pixel that can be seen means all of it.
      const box = this.zoom.scale >= PIXEL && !isLargeEnough(drawn) ? outerPixels(drawn, this.size) : drawn;
      this.anchor = null;
      if (isLargeEnough(box)) this.add({ box });
    };
    return { drop: (corner, isMoved) => (isMoved || isSecond) && end(corner), cancel: () => isSecond || (this.anchor = null) };
  }

  /** The handle of the selected object at a place. On the outline of a polygon, a new corner is made. */
  #handleAt(at) {
    const { selected } = this;
    if (!selected || this.line || this.anchor || this.isHidden) return null;
    const reach = REACH[this.pointerType];
    const [best] = handles(selected).map((handle) => ({ handle, away: this.distance(at, handle.x, handle.y) })).sort((a, b) => a.away - b.away);
    if (best.away <= reach) return best.handle;
    if (selected.box) return null;
    const edge = nearestOnOutline(selected, at.x, at.y);
    if (edge.distance * this.zoom.scale > reach) return null;
    this.change(selected, withCorner(selected, edge));
    return { ring: edge.ring, corner: edge.corner + 1 };
  }

  /** The smallest object at a place: it may be inside another one. */
  #objectAt({ x, y }) {
    const reach = REACH[this.pointerType] / 2 / this.zoom.scale;
    const found = this.objects.filter((object) => contains(object, x, y, reach));
    return found.reduce((best, object) => (best && area(best) <= area(object) ? best : object), null);
  }

  // Painting

  paint(context) {
    const { dragged } = this;
    if (!dragged) this.#paintObjects(context, this.objects);
    else {
      this.#still = this.#stillOf(context);
      context.save();
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.drawImage(this.#still.canvas, 0, 0);
      context.restore();
      this.#paintObjects(context, [dragged]);
    }
    const { selected } = this;
    if (selected) this.#paintHandles(context, dragged ?? selected);
    if (this.line) this.paintLine(context);
    if (this.anchor && this.cursor) this.#paintNewBox(context);
    if (this.cursor && !this.isDragging && this.tool !== 'select') this.#paintCrosshair(context);
  }

  /** A picture of all objects but the dragged one, unless the one there is still true. */
  #stillOf({ canvas }) {
    const { objects, zoom } = this;
    const key = [objects, zoom.x, zoom.y, zoom.scale, canvas.width, canvas.height];
    if (this.#still?.key.every((value, at) => value === key[at])) return this.#still;
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext('2d');
    context.setTransform(this.context.getTransform());
    this.#paintObjects(context, objects.filter(({ id }) => id !== this.dragged.id));
    return { key, canvas: copy };
  }

  #paintObjects(context, objects) {
    const { clientWidth, clientHeight } = this.frame;
    const isCrowd = objects.length > CROWD;
    context.font = '600 12px system-ui, sans-serif';
    context.textBaseline = 'bottom';
    context.lineJoin = 'round';
    for (const object of objects) {
      const [left, top, right, bottom] = bounds(object);
      const [x, y] = this.toFrame(left, top);
      const [endX, endY] = this.toFrame(right, bottom);
      if (x > clientWidth || y > clientHeight || endX < 0 || endY < 0) continue;
      const { name, color } = this.classes[object.class] ?? { name: '?', color: '#888888' };
      const isSelected = object.id === this.selectedId;
      context.setLineDash(object.from ? [6, 4] : []);
      this.#traceObject(context, object);
      if (isSelected || object.rings) {
        context.globalAlpha = isSelected ? 0.2 : 0.12;
        context.fillStyle = color;
        context.fill('evenodd');
        context.globalAlpha = 1;
      }
      this.stroke(context, color, isSelected ? 3 : 2);
      if (!isSelected && (isCrowd || Math.min(endX - x, endY - y) < NAMED_SIDE)) continue;
      const words = object.score === undefined ? name : `${name} ${Math.round(100 * object.score)}%`;
      paintText(context, words, Math.max(2, x), y > 18 ? y - 3 : Math.min(endY, y + 18));
    }
    context.setLineDash([]);
  }

  #traceObject(context, { box, rings = [] }) {
    context.beginPath();
    if (box) context.rect(...this.toFrame(box[0], box[1]), (box[2] - box[0]) * this.zoom.scale, (box[3] - box[1]) * this.zoom.scale);
    for (const ring of rings) {
      this.trace(context, ring);
      context.closePath();
    }
  }

  #paintHandles(context, object) {
    const size = HANDLE[this.pointerType];
    for (const { x, y, ring, corner } of handles(object)) {
      const [frameX, frameY] = this.toFrame(x, y);
      const isChosen = this.corner && this.corner.ring === ring && this.corner.corner === corner;
      context.fillStyle = isChosen ? '#ffcc00' : '#ffffff';
      context.strokeStyle = '#000000';
      context.lineWidth = 1;
      context.fillRect(frameX - size, frameY - size, 2 * size, 2 * size);
      context.strokeRect(frameX - size, frameY - size, 2 * size, 2 * size);
    }
  }

  #paintNewBox(context) {
    const end = this.toImage(this.cursor);
    this.#traceObject(context, { box: boxBetween([this.anchor.x, this.anchor.y], [end.x, end.y], this.size) });
    this.stroke(context);
  }

  #paintCrosshair(context) {
    const { x, y } = this.cursor;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, this.frame.clientHeight);
    context.moveTo(0, y);
    context.lineTo(this.frame.clientWidth, y);
    context.lineWidth = 1;
    for (const [style, dash] of [[HALO, []], ['#ffffff', [4, 4]]]) {
      context.strokeStyle = style;
      context.setLineDash(dash);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

function paintText(context, words, x, y) {
  context.lineWidth = 4;
  context.strokeStyle = HALO;
  context.strokeText(words, x + 2, y);
  context.fillStyle = '#ffffff';
  context.fillText(words, x + 2, y);
}

const named = (objects) => objects.map((object) => ({ ...object, id: uniqueName() }));

/** Shapes with hundredths of a pixel: more is noise of the pointer. */
function rounded({ box, rings, ...rest }) {
  const round = (points) => points.map((value) => Math.round(100 * value) / 100);
  return { ...rest, ...(box && { box: round(box) }), ...(rings && { rings: rings.map(round) }) };
}
