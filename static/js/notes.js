// The notes of a job, saved while typing. Unsaved text is kept in the browser, and saving is retried.

import { formData, request } from './http.js';
import { forget, store, stored } from './storage.js';

const SAVE_MILLISECONDS = 700;
const RETRY_MILLISECONDS = 5000;

/** Starts saving the notes of `job` ({id, url}). */
export function startNotes(job) {
  const notes = document.getElementById('job-notes');
  const state = document.getElementById('notes-state');
  const key = `note ${job.id}`;
  let saved = notes.defaultValue; // what the server has
  let timer = 0;
  let saving = null;

  const isSaved = () => notes.value === saved;
  const drop = () => forget('localStorage', (name) => name === key);

  async function save() {
    clearTimeout(timer);
    await saving;
    if (isSaved()) return;
    const text = notes.value;
    const keepalive = document.visibilityState === 'hidden'; // completes even if the page is closed
    saving = request(job.url, { method: 'PUT', body: formData({ job_notes: text }), keepalive })
      .then(
        () => {
          saved = text;
          if (isSaved()) drop();
          state.textContent = isSaved() ? 'Saved' : '';
        },
        ({ status, message }) => {
          state.textContent = status ? `Not saved: ${message}` : 'Not saved yet: no connection. Retrying…';
          if (!status) later(RETRY_MILLISECONDS);
        },
      )
      .finally(() => (saving = null));
    await saving;
  }

  function later(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(save, milliseconds);
  }

  notes.addEventListener('input', () => {
    store('localStorage', key, { text: notes.value, saved });
    state.textContent = '';
    later(SAVE_MILLISECONDS);
  });
  window.addEventListener('pagehide', save);
  window.addEventListener('online', save);
  document.addEventListener('live-joined', () => later(0));
  document.addEventListener('notes-changed', ({ detail: text }) => {
    // The server strips the text, so it may be shorter than what was typed here.
    if (isSaved() && text.trim() !== saved.trim()) notes.value = saved = text;
  });

  // Left over from a visit whose notes were not saved.
  const left = stored('localStorage', key);
  if (left && left.text !== saved) {
    // The notes may have been changed since then: keep both.
    notes.value = left.saved === saved || !saved ? left.text : `${saved}\n\n${left.text}`;
    state.textContent = 'Not saved yet';
    later(0);
  } else drop();
}
