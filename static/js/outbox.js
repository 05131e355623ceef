// Changes that the server has not confirmed. They are in the browser's database before they are sent, so that neither a
// closed tab nor a stopped server loses one; the server ignores a change that it already has.

import { uniqueName, wordsOf } from './http.js';

const DATABASE = 'digits-labels';
const STORE = 'changes';
const SEND_MILLISECONDS = 300;
const RETRY_MILLISECONDS = [1000, 2000, 5000];
// No answer, a login that has expired, a busy server, or a full disk: all changes wait. Others concern one change.
const TEMPORARY = [0, 401, 403, 408, 429, 502, 503, 504, 507];

export class Outbox {
  #database = null;
  #waiting = new Map();
  #sending = null;
  #timer = 0;
  #failures = 0;

  /**
   * Opens the changes of a job. `send` posts one and resolves to {rev}. If it rejects with a temporary error, it is sent
   * again. Otherwise the change is kept with the `problem`, given to `refused` with the error, and others go on: it is
   * sent again after another change of the image, `retry`, or when the page is opened. `shown` is called with the number
   * of changes to send, those with a problem, and the last temporary error.
   */
  static async open(job, { send, answered, refused, shown }) {
    const outbox = new Outbox();
    Object.assign(outbox, { job, send, answered, refused, shown });
    try {
      outbox.#database = await asked(Object.assign(indexedDB.open(DATABASE, 1), { onupgradeneeded: ({ target }) => target.result.createObjectStore(STORE) }));
      for (const change of await asked(outbox.#store().getAll(IDBKeyRange.bound([job], [job, []])))) outbox.#waiting.set(change.n, { ...change, problem: '' });
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
    this.#keep({ ...change, job: this.job, n, rev: before?.rev ?? rev, edit: uniqueName(), earlier, problem: '' });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), SEND_MILLISECONDS);
  }

  /** Bases a refused change on another revision, and sends it again. */
  resend(n, rev) {
    this.#keep({ ...this.find(n), rev, edit: uniqueName(), problem: '' });
    return this.flush();
  }

  /** Sends all refused changes again. */
  retry() {
    for (const change of this.#refused) this.#keep({ ...change, problem: '' });
    return this.flush();
  }

  get #refused() {
    return [...this.#waiting.values()].filter(({ problem }) => problem);
  }

  #show(error = null) {
    const refused = this.#refused;
    this.shown(this.#waiting.size - refused.length, refused, error);
  }

  drop(n) {
    this.#waiting.delete(n);
    this.#write((store) => store.delete([this.job, n]));
    this.#show();
  }

  /** Sends what waits; resolves when the server has confirmed it or does not answer. */
  flush() {
    clearTimeout(this.#timer);
    this.#sending ??= this.#run().finally(() => (this.#sending = null));
    return this.#sending;
  }

  async #run() {
    let change;
    while ((change = [...this.#waiting.values()].find(({ problem }) => !problem))) {
      try {
        const answer = await this.send(change);
        this.#failures = 0;
        const later = this.find(change.n);
        // A change made in the meantime does not conflict with the one before it.
        if (later === change) this.drop(change.n);
        else if (later) this.#keep({ ...later, rev: answer.rev });
        this.answered(change.n, answer);
      } catch (error) {
        if (!TEMPORARY.includes(error.status)) {
          if (this.find(change.n) !== change) continue; // a later change, which may be right
          const refused = { ...change, problem: wordsOf(error) };
          this.#keep(refused);
          await this.refused(refused, error);
          continue;
        }
        this.#show(error);
        this.#timer = setTimeout(() => this.flush(), RETRY_MILLISECONDS[Math.min(this.#failures++, RETRY_MILLISECONDS.length - 1)]);
        return;
      }
    }
  }

  #keep(change) {
    this.#waiting.set(change.n, change);
    this.#write((store) => store.put(change, [change.job, change.n]));
    this.#show();
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
