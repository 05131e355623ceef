// Draws boxes and polygons over an image, and changes them.

import { Changes } from './changes.js';
import { uniqueName } from './http.js';
import { ImageCanvas } from './image_canvas.js';
import { area, bounds, boxBetween, contains, corners, handles, isLargeEnough, movedBy, nearestOnOutline, outerPixels, ringArea, simplify, SMALLEST, withCorner, withHandle, withoutCorner } from './shapes.js';

// In pixels of the page, for fingers and for finer pointers.
const REACH = { touch: 22, pen: 10, mouse: 7 };
const HANDLE = { touch: 9, pen: 5, mouse: 4 };
// A pixel of the image that is so large on the page can be seen.
const PIXEL = 4;
const FREEHAND_TOLERANCE = 1.5;
// Smaller objects get no name, and neither do those of a crowd.
const NAMED_SIDE = 18;
const CROWD = 300;
const HALO = 'rgb(0 0 0 / 55%)';

export class ObjectCanvas extends ImageCanvas {
  changes = new Changes((state) => this.#set(state));
  // The objects that stay while one is dragged, painted once.
  #still = null;

  /** `classes` are [{name, color}, …] by id. Calls `changed` after changes of objects, and `shown` when others are selected. */
  constructor(frame, image, { classes, changed, shown }) {
    super(frame, image);
    Object.assign(this, { classes, changed, shown, objects: [], selectedId: null, corner: null, class: -1, tool: 'box', dragged: null, anchor: null, line: null });
    this.useClasses();
    this.canvas.addEventListener('dblclick', () => this.finish());
  }

  /** Takes over changed classes: another one is chosen instead of a deleted one. */
  useClasses() {
    if (this.classes[this.class]?.is_deleted ?? true) this.class = this.classes.find(({ is_deleted: isDeleted }) => !isDeleted)?.id ?? 0;
    this.draw();
  }

  get selected() {
    return this.objects.find(({ id }) => id === this.selectedId) ?? null;
  }

  get pointer() {
    return this.tool === 'select' ? 'default' : 'crosshair';
  }

  /** Shows the objects of another image of a size. */
  load(objects, width, height) {
    this.cancel();
    this.changes.clear();
    this.#show({ objects: objects.map((object) => ({ ...object, id: uniqueName() })), selectedId: null });
    this.setSize(width, height);
  }

  /** The objects without what only this page needs. */
  get values() {
    return this.objects.map(({ id, ...object }) => object);
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

  /** Changes an object. What a model proposed becomes a person's. */
  change(object, values) {
    const { from, score, ...own } = object;
    const changed = { ...own, ...rounded(values) };
    this.#commit(this.objects.map((other) => (other.id === object.id ? changed : other)));
  }

  remove(object) {
    this.#commit(this.objects.filter((other) => other !== object), null);
  }

  /** Chooses the class of the selected object, and of those drawn from now on. */
  setClass(id) {
    this.class = id;
    const { selected } = this;
    if (selected && selected.class !== id) this.change(selected, { class: id });
    else this.shown();
  }

  nudge(dx, dy) {
    const { selected } = this;
    if (selected) this.change(selected, movedBy(selected, dx, dy, this.size));
  }

  /** Removes the last corner of an unfinished polygon, the chosen corner, or the selected object. */
  erase() {
    const { selected, corner } = this;
    if (this.line?.length > 2) this.line.splice(-2);
    else if (this.line || this.anchor) this.cancel();
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
    const wasDrawing = Boolean(this.line || this.anchor || this.dragged);
    this.line = this.anchor = this.dragged = this.#still = null;
    super.cancel();
    return wasDrawing;
  }

  /** Closes an unfinished polygon; returns whether there was one. */
  finish() {
    if (!this.line) return false;
    const ring = simplify(this.line, 0);
    this.line = null;
    if (ring.length >= 6 && ringArea(ring) >= SMALLEST) this.add({ rings: [ring] });
    this.draw();
    return true;
  }

  // Pointers

  press(at, { ctrlKey, metaKey, altKey, pointerType }) {
    const handle = this.#handleAt(at);
    if (handle) return this.#dragHandle(handle, altKey);
    if (this.tool === 'select' || ctrlKey || metaKey) return this.#dragObject(at, pointerType);
    return this.tool === 'polygon' ? this.#drawPolygon(at) : this.#drawBox(at);
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

  /** Corners are clicked, or the outline is drawn freehand. */
  #drawPolygon(at) {
    const line = (this.line ??= []);
    if (this.#isAtStart(at)) return { drop: () => this.finish() };
    const start = line.length;
    const add = ({ x, y }) => line.push(Math.min(this.size.width, Math.max(0, x)), Math.min(this.size.height, Math.max(0, y)));
    add(at);
    return {
      move: add,
      drop: (end, isMoved) => {
        if (!isMoved) return;
        line.push(...simplify(line.splice(start), FREEHAND_TOLERANCE / this.zoom.scale));
        if (this.#isAtStart(end)) this.finish();
      },
      cancel: () => (line.splice(start), start || (this.line = null)),
    };
  }

  #isAtStart(at) {
    return this.line.length >= 6 && this.distance(at, this.line[0], this.line[1]) <= REACH[this.pointerType];
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
    if (this.line || this.anchor) this.#paintUnfinished(context);
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
      this.#trace(context, object);
      if (isSelected || object.rings) {
        context.globalAlpha = isSelected ? 0.2 : 0.12;
        context.fillStyle = color;
        context.fill('evenodd');
        context.globalAlpha = 1;
      }
      for (const [style, width] of [[HALO, isSelected ? 5 : 4], [color, isSelected ? 3 : 2]]) {
        context.strokeStyle = style;
        context.lineWidth = width;
        context.stroke();
      }
      if (!isSelected && (isCrowd || Math.min(endX - x, endY - y) < NAMED_SIDE)) continue;
      const words = object.score === undefined ? name : `${name} ${Math.round(100 * object.score)}%`;
      paintText(context, words, Math.max(2, x), y > 18 ? y - 3 : Math.min(endY, y + 18));
    }
    context.setLineDash([]);
  }

  #trace(context, { box, rings }) {
    context.beginPath();
    if (box) {
      const [x, y] = this.toFrame(box[0], box[1]);
      context.rect(x, y, (box[2] - box[0]) * this.zoom.scale, (box[3] - box[1]) * this.zoom.scale);
      return;
    }
    for (const ring of rings) {
      for (const [at, [x, y]] of corners(ring).entries()) context[at ? 'lineTo' : 'moveTo'](...this.toFrame(x, y));
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

  #paintUnfinished(context) {
    const end = this.cursor ? this.toImage(this.cursor) : null;
    context.beginPath();
    if (this.line) {
      for (const [at, [x, y]] of corners(this.line).entries()) context[at ? 'lineTo' : 'moveTo'](...this.toFrame(x, y));
      if (end && !this.isDragging) context.lineTo(this.cursor.x, this.cursor.y);
    } else if (end) {
      const [left, top, right, bottom] = boxBetween([this.anchor.x, this.anchor.y], [end.x, end.y], this.size);
      const [x, y] = this.toFrame(left, top);
      context.rect(x, y, (right - left) * this.zoom.scale, (bottom - top) * this.zoom.scale);
    }
    for (const [style, width] of [[HALO, 4], [this.classes[this.class]?.color ?? '#ffffff', 2]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.stroke();
    }
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

/** Shapes with hundredths of a pixel: more is noise of the pointer. */
function rounded({ box, rings, ...rest }) {
  const round = (points) => points.map((value) => Math.round(100 * value) / 100);
  return { ...rest, ...(box && { box: round(box) }), ...(rings && { rings: rings.map(round) }) };
}
