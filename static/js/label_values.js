// What people label, for each kind of labels: objects, masks, one class, any number of classes, or numbers.
//
// Each has a `canvas`; `load(entry, about)` shows an entry of the log or a proposal; `value` is what is posted; `choose`
// applies a class, and `chosen` are the ids of the classes to mark; `isEmpty` tells whether there are no labels.
// `classes` are those of the job by id, deleted ones included; call `useClasses` after they have changed.

import { Changes } from './changes.js';
import { element } from './element.js';
import { request } from './http.js';
import { ImageCanvas } from './image_canvas.js';
import { Mask } from './mask.js';
import { MaskCanvas } from './mask_canvas.js';
import { ObjectCanvas } from './object_canvas.js';

const DIGITS = [...'1234567890'];
// Letters that mean nothing else on the page.
const LETTERS = [...'qwtyuiogjklzn'];

/** What is drawn, with a class for what is drawn next. */
class Drawn {
  keys = DIGITS;

  constructor(canvas) {
    this.canvas = canvas;
  }

  choose(id) {
    this.canvas.setClass(id);
  }

  useClasses() {
    this.canvas.useClasses();
  }
}

class Objects extends Drawn {
  tools = [['box', 'Box', 'b'], ['polygon', 'Polygon', 'p'], ['select', 'Select', 'v']];

  constructor(frame, image, options) {
    super(new ObjectCanvas(frame, image, options));
  }

  load({ objects = [] }, { width, height }) {
    this.canvas.load(objects, width, height);
  }

  get value() {
    return { objects: this.canvas.values };
  }

  get isEmpty() {
    return !this.canvas.objects.length;
  }

  get chosen() {
    return [this.canvas.selected?.class ?? this.canvas.class];
  }
}

class Masks extends Drawn {
  tools = [['brush', 'Brush', 'b'], ['polygon', 'Outline', 'p'], ['fill', 'Fill', 'g']];

  constructor(frame, image, options) {
    super(new MaskCanvas(frame, image, options));
  }

  /** `mask` is a file, or the name of one that the server has. */
  async load({ mask, rev }, { url, width, height }) {
    const file = typeof mask === 'string' ? await (await request(`${url}/mask?${rev ? `rev=${rev}` : 'proposed=1'}`)).blob() : mask;
    this.canvas.load(file ? await Mask.fromPng(file) : null, width, height);
  }

  get value() {
    return { mask: this.canvas.mask };
  }

  isEmpty = false; // without any object, all is background

  get chosen() {
    return [this.canvas.class];
  }
}

/** A picture that is only looked at. */
class Picture extends ImageCanvas {
  pointer = 'default';

  press() {
    return { pans: true };
  }

  paint() {}
}

class Values {
  tools = [];
  keys = [...DIGITS, ...LETTERS];
  chosen = [];

  constructor(frame, image, { changed, shown }) {
    this.canvas = new Picture(frame, image);
    Object.assign(this, { changed, shown });
    this.canvas.changes = new Changes((chosen) => this.put(chosen));
  }

  useClasses() {}

  load(entry, { width, height }) {
    this.canvas.setSize(width, height);
    this.set(this.read(entry));
    this.canvas.changes.clear();
  }

  set(chosen) {
    this.chosen = chosen;
    this.shown();
  }

  put(chosen) {
    this.set(chosen);
    this.changed();
  }

  /** Changes what is chosen, which can be undone. */
  change(chosen) {
    this.canvas.changes.add(this.chosen, chosen);
    this.put(chosen);
  }

  get isEmpty() {
    return !this.chosen.length;
  }
}

class OneClass extends Values {
  // The next image follows each choice: nothing else is labeled.
  goesOn = true;
  // An image without a class is not labeled, while one without objects is.
  needsValue = true;

  read({ label }) {
    return label === undefined || label === null ? [] : [label];
  }

  get value() {
    return { label: this.chosen[0] };
  }

  choose(index) {
    this.change([index]);
  }
}

class ManyClasses extends Values {
  read({ labels = [] }) {
    return labels;
  }

  get value() {
    return { labels: this.chosen };
  }

  choose(index) {
    this.change(this.chosen.includes(index) ? this.chosen.filter((other) => other !== index) : [...this.chosen, index].sort((a, b) => a - b));
  }
}

class Numbers extends Values {
  keys = [];
  needsValue = true;

  constructor(frame, image, options) {
    super(frame, image, options);
    this.options = options;
    this.useClasses();
  }

  useClasses() {
    const { classes, panel } = this.options;
    const row = ({ id, name }) => {
      const field = element('input', { class: 'input', type: 'number', step: 'any', id: `number-${id}` });
      field.addEventListener('change', () => this.change(this.fields.map((other) => [other.id, other.field.valueAsNumber])));
      return { id, field, label: element('label', 'stack stack-tight small', name, field) };
    };
    this.fields = classes.filter((item) => !item.is_deleted).map(row);
    panel.replaceChildren(...this.fields.map(({ label }) => label));
    this.set(this.read({ numbers: Object.fromEntries(this.chosen) }));
  }

  read({ numbers = {} }) {
    return this.fields.map(({ id }) => [id, numbers[id]]);
  }

  set(chosen) {
    const values = Object.fromEntries(chosen);
    for (const { id, field } of this.fields) field.value = values[id] ?? '';
    super.set(chosen);
  }

  get value() {
    return { numbers: Object.fromEntries(this.chosen) };
  }

  get isEmpty() {
    return !this.chosen.every(([, value]) => Number.isFinite(value));
  }

  choose() {}
}

export const KINDS = { objects: Objects, mask: Masks, label: OneClass, labels: ManyClasses, numbers: Numbers };
