// Changes of a dataset's images that are not part of a version yet. The server keeps them for all visitors.

import { countOf } from './format.js';
import { postForm } from './http.js';

/**
 * The changes of a dataset: {"train/7": {exclude: true} | {label: 2, split: "val"}}. Instead of a `label`, a record with
 * any number of labels has `labels`, {"2": true, "0": false}, and one with numbers has `numbers`, {"0": 1.5}.
 */
export class RecordEdits {
  #unsaved = new Set();
  #saving = Promise.resolve();

  /** `changes` are those known to the server, `url` is where new ones are posted to, and `failed` is called with errors. */
  constructor(changes, url, failed = () => {}) {
    Object.assign(this, { changes, url, failed });
  }

  get count() {
    return Object.keys(this.changes).length;
  }

  /** Resolves when all changes were sent to the server. */
  get saved() {
    return this.#saving;
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
      this.#unsaved.add(record);
    }
    this.#saving = this.#saving.then(() => this.#save());
  }

  clear() {
    this.apply(Object.keys(this.changes), null);
  }

  /** The changes in words: "3 images excluded, 1 image relabeled". */
  get words() {
    const all = Object.values(this.changes);
    const kept = all.filter(({ exclude }) => !exclude);
    return Object.entries({
      excluded: all.length - kept.length,
      relabeled: kept.filter(({ label, labels, numbers }) => label !== undefined || labels || numbers).length,
      moved: kept.filter(({ split }) => split).length,
    })
      .filter(([, count]) => count)
      .map(([what, count]) => `${countOf(count, 'image')} ${what}`)
      .join(', ');
  }

  /** Sends what is unsaved. After an error, the next call sends it again. */
  async #save() {
    if (!this.#unsaved.size) return;
    const sent = [...this.#unsaved];
    this.#unsaved.clear();
    const changes = Object.fromEntries(sent.map((record) => [record, this.changes[record] ?? null]));
    try {
      await postForm(this.url, { changes: JSON.stringify(changes) });
    } catch (error) {
      // The labels of these images have changed since the dataset was made from them: the server saved nothing.
      const outdated = error.body?.records ?? [];
      for (const record of outdated) delete this.changes[record];
      for (const record of sent) if (!outdated.includes(record)) this.#unsaved.add(record);
      this.failed(error);
      if (outdated.length) await this.#save();
    }
  }
}

/** Combines the changes of a record: later ones of the same label or number replace earlier ones. */
function merge(before = {}, change) {
  const { exclude, ...merged } = { ...before, ...change };
  for (const name of ['labels', 'numbers']) if (change[name]) merged[name] = { ...before[name], ...change[name] };
  return merged;
}
