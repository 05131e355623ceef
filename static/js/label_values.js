// What people label without drawing: one class, any number of classes, or numbers.

import { Changes } from './changes.js';
import { element } from './element.js';
import { ImageCanvas } from './image_canvas.js';
import { MaskCanvas } from './mask_canvas.js';
import { ObjectCanvas } from './object_canvas.js';

// Digits, and letters that mean nothing else on the page.
const CLASS_KEYS = [...'1234567890qwtyuiogjklzn'];

/** A picture that is only looked at, and the ids or numbers that are `chosen`. */
class Values extends ImageCanvas {
  classKeys = CLASS_KEYS;
  pointer = 'default';
  chosen = [];
  changes = new Changes((chosen) => this.put(chosen));

  press() {
    return { pans: true };
  }

  paint() {}

  load(entry, { width, height }) {
    this.setSize(width, height);
    this.set(this.read(entry));
    this.changes.clear();
  }

  set(chosen) {
    this.chosen = chosen;
    this.shown();
  }

  put(chosen) {
    this.set(chosen);
    this.changed();
  }

  replace(entry) {
    this.change(this.read(entry));
  }

  /** Saves what is chosen. It can be undone if it is different. */
  change(chosen) {
    if (JSON.stringify(chosen) !== JSON.stringify(this.chosen)) this.changes.add(this.chosen, chosen);
    this.put(chosen);
  }
}

class OneClass extends Values {
  // The next image follows each choice: nothing else is labeled.
  goesOn = true;

  read({ label }) {
    return label === undefined || label === null ? [] : [label];
  }

  get value() {
    return { label: this.chosen[0] };
  }

  get missing() {
    return this.chosen.length ? '' : 'a class';
  }

  choose(id) {
    this.change([id]);
  }
}

class ManyClasses extends Values {
  read({ labels = [] }) {
    return labels;
  }

  get value() {
    return { labels: this.chosen };
  }

  choose(id) {
    this.change(this.chosen.includes(id) ? this.chosen.filter((other) => other !== id) : [...this.chosen, id].sort((a, b) => a - b));
  }
}

class Numbers extends Values {
  classKeys = [];

  useClasses() {
    const row = ({ id, name }) => {
      const field = element('input', { class: 'input', type: 'number', step: 'any', id: `number-${id}` });
      field.addEventListener('change', () => this.isLocked || this.change(this.fields.map((other) => [other.id, other.field.valueAsNumber])));
      return { id, field, label: element('label', 'stack stack-tight small', name, field) };
    };
    this.fields = this.classes.filter((item) => !item.is_deleted).map(row);
    document.getElementById('label-numbers').replaceChildren(...this.fields.map(({ label }) => label));
    this.set(this.read(this.value));
  }

  read({ numbers = {} }) {
    return this.fields.map(({ id }) => [id, numbers[id]]);
  }

  set(chosen) {
    super.set(chosen);
    const { numbers } = this.value;
    for (const { id, field } of this.fields) field.value = numbers[id] ?? '';
  }

  /** Those that are known so far. */
  get value() {
    return { numbers: Object.fromEntries(this.chosen.filter(([, value]) => Number.isFinite(value))) };
  }

  get missing() {
    return this.chosen.every(([, value]) => Number.isFinite(value)) ? '' : 'all numbers';
  }
}

/** The canvas for each field of an answer. */
export const KINDS = { objects: ObjectCanvas, mask: MaskCanvas, label: OneClass, labels: ManyClasses, numbers: Numbers };
