// Unsaved changes to a dataset's images, which survive paging and reloads in this tab.

const KEY = 'digits-edits-';

/** The changes of the dataset `id`: {"train/7": {exclude: true} | {label: 2} | {split: "val"}}. */
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
      else this.changes[record] = change.exclude ? change : { ...this.changes[record], exclude: undefined, ...change };
      // Moving a record to its own split restores it.
      const { exclude, label, split } = this.changes[record] ?? {};
      if (record.startsWith(`${split}/`)) delete this.changes[record].split;
      if (!exclude && label === undefined && !this.changes[record]?.split) delete this.changes[record];
    }
    this.#save();
  }

  clear() {
    this.changes = {};
    this.#save();
  }

  /** The changes as the server expects them. */
  toJSON() {
    const edits = { exclude: [], relabel: [], move: [] };
    for (const [record, { exclude, label, split }] of Object.entries(this.changes)) {
      const [from, number] = record.split('/');
      const id = [from, Number(number)];
      if (exclude) {
        edits.exclude.push(id);
        continue;
      }
      if (label !== undefined) edits.relabel.push([...id, label]);
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

/** Describes changes: "3 images excluded, 1 image relabeled". */
export function describeEdits({ exclude = [], relabel = [], move = [] }) {
  return [
    [exclude.length, 'excluded'],
    [relabel.length, 'relabeled'],
    [move.length, 'moved'],
  ]
    .filter(([count]) => count)
    .map(([count, what]) => `${count.toLocaleString('en')} ${count === 1 ? 'image' : 'images'} ${what}`)
    .join(', ');
}
