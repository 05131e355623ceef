// Changes that the server has not confirmed. They are in the browser's database before they are sent, so that neither a
// closed tab nor a stopped server loses one; the server ignores a change that it already has.

import { uniqueName } from './http.js';

const DATABASE = 'digits-labels';
const STORE = 'changes';
const SEND_MILLISECONDS = 300;
const RETRY_MILLISECONDS = [1000, 2000, 5000];

export class Outbox {
  #database = null;
  #waiting = new Map();
  #sending = null;
  #timer = 0;
  #failures = 0;

  /**
   * Opens the changes of a job. `send` posts one and resolves to {rev}; if it rejects with an error that has the status
   * 400 or 409, the change is kept and given to `refused` with the error, otherwise it is sent again. `shown` is called
   * with the number of changes that wait and the last error.
   */
  static async open(job, { send, answered, refused, shown }) {
    const outbox = new Outbox();
    Object.assign(outbox, { job, send, answered, refused, shown });
    try {
      outbox.#database = await asked(Object.assign(indexedDB.open(DATABASE, 1), { onupgradeneeded: ({ target }) => target.result.createObjectStore(STORE) }));
      for (const change of await asked(outbox.#store().getAll(IDBKeyRange.bound([job], [job, []])))) outbox.#waiting.set(change.n, { ...change, isRefused: false });
    } catch {
      // A private window may have no database: changes wait in memory only.
    }
    window.addEventListener('online', () => outbox.flush());
    document.addEventListener('visibilitychange', () => outbox.flush());
    outbox.flush();
    return outbox;
  }

  /** The latest change of an image that the server has not confirmed. */
  find(n) {
    return this.#waiting.get(n);
  }

  /** The numbers of the images whose changes the server has not confirmed. */
  get images() {
    return [...this.#waiting.keys()];
  }

  /** Keeps a change of an image, based on the revision `rev`. An earlier one that was not sent is replaced. */
  put(n, rev, change) {
    const before = this.find(n);
    // The server may have saved those whose response was lost.
    const earlier = before ? [...(before.earlier ?? []), before.edit].slice(-1000) : [];
    this.#keep({ ...change, job: this.job, n, rev: before?.rev ?? rev, edit: uniqueName(), earlier });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), SEND_MILLISECONDS);
  }

  /** Bases a refused change on another revision, and sends it again. */
  resend(n, rev) {
    const { isRefused, ...change } = this.find(n);
    this.#keep({ ...change, rev, edit: uniqueName() });
    return this.flush();
  }

  drop(n) {
    this.#waiting.delete(n);
    this.#write((store) => store.delete([this.job, n]));
    this.shown(this.#waiting.size);
  }

  /** Sends what waits; resolves when the server has confirmed it or does not answer. */
  flush() {
    clearTimeout(this.#timer);
    this.#sending ??= this.#run().finally(() => (this.#sending = null));
    return this.#sending;
  }

  async #run() {
    let change;
    while ((change = [...this.#waiting.values()].find(({ isRefused }) => !isRefused))) {
      try {
        const answer = await this.send(change);
        this.#failures = 0;
        const later = this.find(change.n);
        // A change made in the meantime does not conflict with the one before it.
        if (later === change) this.drop(change.n);
        else if (later) this.#keep({ ...later, rev: answer.rev });
        this.answered(change.n, answer);
      } catch (error) {
        if (error.status === 400 || error.status === 409) {
          const refused = { ...this.find(change.n), isRefused: true };
          this.#keep(refused);
          await this.refused(refused, error);
          continue;
        }
        this.shown(this.#waiting.size, error);
        this.#timer = setTimeout(() => this.flush(), RETRY_MILLISECONDS[Math.min(this.#failures++, RETRY_MILLISECONDS.length - 1)]);
        return;
      }
    }
  }

  #keep(change) {
    this.#waiting.set(change.n, change);
    this.#write((store) => store.put(change, [change.job, change.n]));
    this.shown(this.#waiting.size);
  }

  #store() {
    return this.#database.transaction(STORE, 'readwrite').objectStore(STORE);
  }

  #write(act) {
    if (!this.#database) return;
    const store = this.#store();
    act(store);
    store.transaction.commit(); // before the page is closed
  }
}

const asked = (query) =>
  new Promise((resolve, reject) => {
    query.onsuccess = () => resolve(query.result);
    query.onerror = () => reject(query.error);
  });
