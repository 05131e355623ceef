// Unsaved changes to a dataset's images, which survive paging and reloads in this tab.

const KEY = 'digits-edits-';

/**
 * The changes of the dataset `id`: {"train/7": {exclude: true} | {label: 2, split: "val"}}. Instead of a `label`, a record with any
 * number of labels has `labels`, {"2": true, "0": false}, and one with numbers `numbers`, {"0": 1.5}: those that change.
 */
export class RecordEdits {
  constructor(id) {
    this.key = `${KEY}${id}`;
    try {
      this.changes = JSON.parse(sessionStorage.getItem(this.key)) ?? {};
    } catch {
      this.changes = {};
    }
  }

  get count() {
    return Object.keys(this.changes).length;
  }

  /** Applies a change to records; null restores them. */
  apply(records, change) {
    for (const record of records) {
      if (change === null) delete this.changes[record];
      else this.changes[record] = change.exclude ? change : merge(this.changes[record], change);
      // Moving a record to its own split restores it.
      const { exclude, label, labels, numbers, split } = this.changes[record] ?? {};
      if (record.startsWith(`${split}/`)) delete this.changes[record].split;
      if (!exclude && label === undefined && !labels && !numbers && !this.changes[record]?.split) delete this.changes[record];
    }
    this.#save();
  }

  clear() {
    this.changes = {};
    this.#save();
  }

  /** The changes as the server expects them. */
  toJSON() {
    const edits = { exclude: [], relabel: [], add_labels: [], remove_labels: [], set_numbers: [], move: [] };
    for (const [record, { exclude, label, labels, numbers, split }] of Object.entries(this.changes)) {
      const [from, number] = record.split('/');
      const id = [from, Number(number)];
      if (exclude) {
        edits.exclude.push(id);
        continue;
      }
      if (label !== undefined) edits.relabel.push([...id, label]);
      for (const [index, isAdded] of Object.entries(labels ?? {})) edits[isAdded ? 'add_labels' : 'remove_labels'].push([...id, Number(index)]);
      for (const [index, value] of Object.entries(numbers ?? {})) edits.set_numbers.push([...id, Number(index), value]);
      if (split) edits.move.push([...id, split]);
    }
    return edits;
  }

  #save() {
    try {
      sessionStorage.setItem(this.key, JSON.stringify(this.changes));
    } catch {
      // Without storage, the changes last until the page is left.
    }
  }
}

/** Combines the changes of a record: later ones of the same label or number replace earlier ones. */
function merge(before = {}, change) {
  const merged = { ...before, exclude: undefined, ...change };
  for (const name of ['labels', 'numbers']) if (change[name]) merged[name] = { ...before[name], ...change[name] };
  return merged;
}

/** Describes changes: "3 images excluded, 1 image relabeled". */
export function describeEdits({ exclude = [], relabel = [], add_labels = [], remove_labels = [], set_numbers = [], move = [] }) {
  const relabeled = new Set([...relabel, ...add_labels, ...remove_labels, ...set_numbers].map(([split, number]) => `${split}/${number}`));
  return [
    [exclude.length, 'excluded'],
    [relabeled.size, 'relabeled'],
    [move.length, 'moved'],
  ]
    .filter(([count]) => count)
    .map(([count, what]) => `${count.toLocaleString('en')} ${count === 1 ? 'image' : 'images'} ${what}`)
    .join(', ');
}
