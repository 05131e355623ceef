// Create: one real step is taken first, so that a mistake comes back into the form and not, hours later, out of a queue.

import { startSingleSubmit } from './form_parts.js';

// The server has no TensorFlow, or the dataset is still being made: there is nothing to check with.
const CANNOT_CHECK = [503, 409];
// A check takes a second as a rule; only a long one is worth a way around it.
const PATIENCE_MILLISECONDS = 2000;

/** `check()` takes the step, after what `region` is busy with, and answers {answer} or {error}. */
export function startCreating(form, region, check) {
  const status = document.getElementById('create-status');
  const unchecked = document.getElementById('create-unchecked');
  const { busy, free } = startSingleSubmit(form);
  let isSent = false;
  window.addEventListener('pageshow', () => (isSent = false)); // by the browser's back button

  function send(id = '') {
    if (isSent) return; // unchecked, or twice
    isSent = true;
    form.querySelector('[name="preflight"]').value = id;
    busy();
    form.submit(); // which does not ask again
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const isBusy = region.getAttribute('aria-busy') === 'true';
    status.textContent = isBusy ? 'Waiting for what is under way…' : 'Taking one step of it first…';
    const offer = setTimeout(() => (unchecked.hidden = false), PATIENCE_MILLISECONDS);
    const { answer, error } = await check();
    clearTimeout(offer);
    status.textContent = '';
    if (answer && answer.result.verdict_kind !== 'bad') return send(answer.id);
    if (CANNOT_CHECK.includes(error?.status)) return send();
    unchecked.hidden = Boolean(error?.body?.errors); // what the fields ask for is refused anyway
    free();
  });
  unchecked.addEventListener('click', () => form.reportValidity() && send());
}
