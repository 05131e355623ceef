// The notes of a job, saved while typing. Unsaved text is kept in the browser, and saving is retried. If the notes were
// changed elsewhere in the meantime, the user chooses which ones to keep.

import { formData, request } from './http.js';
import { refreshParts } from './refresh.js';
import { reveal } from './reveal.js';
import { forget, store, stored } from './storage.js';

const SAVE_MILLISECONDS = 700;
const RETRY_MILLISECONDS = 5000;
const CONFLICT = 409;

/** Starts saving the notes of `job` ({id, url}). */
export function startNotes(job) {
  const notes = document.getElementById('job-notes');
  const state = document.getElementById('notes-state');
  const conflict = document.getElementById('notes-conflict');
  const key = `note ${job.id}`;
  let saved = notes.defaultValue; // the server's notes, as far as known, on which the text here is based
  let sent = saved; // the server may have them already, although it did not answer
  let newer = null; // the server's notes, if they replaced `saved` while other text was typed here
  let received = 0; // when the server's notes were last known
  let timer = 0;
  let saving = null;

  const isSaved = () => same(notes.value, saved);
  const drop = () => forget('localStorage', (name) => name === key);

  async function save() {
    clearTimeout(timer);
    await saving;
    if (isSaved() || newer !== null) return;
    sent = notes.value;
    const keepalive = document.visibilityState === 'hidden'; // completes even if the page is closed
    const body = formData({ job_notes: sent, job_notes_before: saved });
    saving = request(job.url, { method: 'PUT', body, keepalive })
      .then(
        () => receive(sent),
        ({ status, message }) => {
          if (status === CONFLICT) refreshParts(); // receives the server's notes
          else state.textContent = status ? `Not saved: ${message}` : 'Not saved yet: no connection. Retrying…';
          if (status === CONFLICT || !status) later(RETRY_MILLISECONDS);
        },
      )
      .finally(() => (saving = null));
    await saving;
  }

  function later(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(save, milliseconds);
  }

  /** Takes the server's notes, unless they replace others than those on which unsaved text here is based. */
  function receive(text) {
    received = performance.now();
    if (same(text, notes.value) || same(text, sent)) {
      const isNew = !same(text, saved);
      settle(text);
      if (isNew) state.textContent = isSaved() ? 'Saved' : '';
      if (isSaved()) drop();
      else later(SAVE_MILLISECONDS);
    } else if (same(text, saved)) return;
    else if (isSaved()) {
      notes.value = sent = text;
      settle(text);
    } else {
      newer = text;
      clearTimeout(timer);
      state.textContent = 'Not saved';
      conflict.querySelector('pre').textContent = text || 'Empty';
      conflict.hidden = false;
      reveal(conflict);
    }
  }

  function settle(text) {
    saved = text;
    newer = null;
    conflict.hidden = true;
  }

  conflict.addEventListener('click', ({ target }) => {
    const choice = target.closest('button')?.value;
    if (!choice) return;
    if (choice === 'newer') notes.value = newer;
    settle(newer);
    if (choice === 'newer') drop();
    state.textContent = '';
    notes.focus();
    save();
  });
  notes.addEventListener('input', () => {
    store('localStorage', key, { text: notes.value, saved });
    if (newer !== null) return;
    state.textContent = '';
    later(SAVE_MILLISECONDS);
  });
  window.addEventListener('pagehide', save);
  window.addEventListener('online', save);
  document.addEventListener('live-joined', () => later(0));
  document.addEventListener('notes-changed', ({ detail: text }) => receive(text));
  document.addEventListener('parts-refreshed', ({ detail: { fresh, asked } }) => {
    // The page may have been rendered before the notes that were received meanwhile.
    if (asked < received) refreshParts();
    else receive(fresh.getElementById('job-notes').defaultValue);
  });

  // Left over from a visit whose notes were not saved.
  const left = stored('localStorage', key);
  if (left && !same(left.text, saved)) {
    // The notes may have been changed since then: keep both.
    notes.value = same(left.saved, saved) || !saved ? left.text : `${saved}\n\n${left.text}`;
    state.textContent = 'Not saved yet';
    later(0);
  } else drop();
}

/** The server strips notes, so they may be shorter than what was typed. */
const same = (text, other) => text.trim() === other.trim();
