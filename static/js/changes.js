// Undo and redo: the changes of a page, each with what was there before.

export class Changes {
  #done = [];
  #undone = [];

  /** `restore` shows an earlier or later state again. */
  constructor(restore) {
    this.restore = restore;
  }

  add(before, after) {
    this.#done.push({ before, after });
    this.#undone = [];
  }

  clear() {
    this.#done = [];
    this.#undone = [];
  }

  undo() {
    const change = this.#done.pop();
    if (!change) return;
    this.#undone.push(change);
    this.restore(change.before);
  }

  redo() {
    const change = this.#undone.pop();
    if (!change) return;
    this.#done.push(change);
    this.restore(change.after);
  }
}
