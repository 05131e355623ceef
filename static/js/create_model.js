// Create: one real step is taken first, so that a mistake comes back into the form and not, hours later, out of a queue.

import { startSingleSubmit } from './form_parts.js';

// The server has no TensorFlow, or the dataset is still being made: there is nothing to check with.
const CANNOT_CHECK = [503, 409];
// A check takes a second as a rule; only a long one is worth a way around it.
const PATIENCE_MILLISECONDS = 2000;
// What a step does not depend on.
const ONLY_NAMES = ['model_name', 'group_name', 'preflight', 'csrf_token'];

/** `check()` takes the step and answers {answer} or {error}. */
export function startCreating(form, check) {
  const status = document.getElementById('create-status');
  const unchecked = document.getElementById('create-unchecked');
  const { busy, free } = startSingleSubmit(form);
  let passed = { settings: null, id: '' };

  function send(id = '') {
    form.querySelector('[name="preflight"]').value = id;
    busy();
    form.submit(); // which does not ask again
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const settings = settingsOf(form);
    if (passed.settings === settings) return send(passed.id);
    status.textContent = 'Taking one step of it first…';
    const offer = setTimeout(() => (unchecked.hidden = false), PATIENCE_MILLISECONDS);
    const { answer, error } = await check();
    clearTimeout(offer);
    status.textContent = '';
    if (answer && answer.result.verdict_kind !== 'bad') {
      passed = { settings, id: answer.id };
      return send(answer.id);
    }
    if (CANNOT_CHECK.includes(error?.status)) return send();
    unchecked.hidden = Boolean(error?.body?.errors); // what the fields ask for is refused anyway
    free();
  });
  unchecked.addEventListener('click', () => form.reportValidity() && send());
}

function settingsOf(form) {
  const fields = new FormData(form);
  for (const name of ONLY_NAMES) fields.delete(name);
  return new URLSearchParams(fields).toString();
}
