// The notes of a job: saved while they are typed. What could not be saved is kept in the browser and tried again.

import { formData, request } from './http.js';
import { forget, store, stored } from './storage.js';

const SAVE_MILLISECONDS = 700;
const RETRY_MILLISECONDS = 5000;

/** Brings the notes of `job` ({id, url}) to life. */
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
    const keepalive = document.visibilityState === 'hidden'; // sent to its end although the page is left
    saving = request(job.url, { method: 'PUT', body: formData({ job_notes: text }), keepalive })
      .then(
        () => {
          saved = text;
          if (isSaved()) drop();
          state.textContent = isSaved() ? 'Saved' : '';
        },
        ({ status, message }) => {
          state.textContent = status ? `Not saved: ${message}` : 'Not saved yet: no connection. Trying again…';
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
    // The server leaves out spaces around it: what was just typed here comes back a little shorter.
    if (isSaved() && text.trim() !== saved.trim()) notes.value = saved = text;
  });

  // Left over from a visit whose note did not reach the server.
  const left = stored('localStorage', key);
  if (left && left.text !== saved) {
    // Somebody may have written another one since then: both stay.
    notes.value = left.saved === saved || !saved ? left.text : `${saved}\n\n${left.text}`;
    state.textContent = 'Not saved yet';
    later(0);
  } else drop();
}
