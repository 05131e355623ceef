// Create model: runs the preflight first, so that errors and warnings are shown before hours in the queue.

import { button, element } from './element.js';
import { showConcerns } from './preflight_result.js';

// Without TensorFlow on the server, or before the dataset is finished, the check is not possible.
const CANNOT_CHECK = [503, 409];
// Results that are no reason to hesitate.
const HARMLESS = ['good', 'unknown'];
// A check usually takes a second; offer to skip it only if it takes longer.
const PATIENCE_MILLISECONDS = 2000;

/**
  * `check()` runs the preflight, whose progress `region` shows, and returns {answer} or {error}. `job` submits the form.
  * `ready()` waits for the form, and `obtain()` obtains the weights and
  * returns whether they could be. `remedies(answer)` returns what to do about warnings as
  * [words, function that changes the form, whether the changed form needs another check], and training starts.
 */
export function startCreating(form, region, check, job, { ready, obtain }, remedies) {
  const unchecked = document.getElementById('create-unchecked');

  function send(id = '') {
    form.querySelector('[name="preflight"]').value = id;
    return job.send();
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    job.busy('Waiting for the weights…');
    await ready();
    if (!(await obtain())) return job.free('The weights are missing.', 'danger');
    job.busy('Checking one training step first…');
    const offer = setTimeout(() => (unchecked.hidden = false), PATIENCE_MILLISECONDS);
    const { answer, error } = await check();
    clearTimeout(offer);
    if (answer && isHarmless(answer)) return send(answer.id);
    if (CANNOT_CHECK.includes(error?.status)) return send();
    unchecked.hidden = !error || Boolean(error.errors); // invalid fields would be rejected anyway
    job.free();
    if (answer) concern(answer);
  });
  // The warnings are about the settings that were checked.
  for (const type of ['input', 'change']) {
    form.addEventListener(type, ({ target }) => {
      if (target.name !== 'model_name' && region.getAttribute('aria-busy') !== 'true') region.hidden = true;
    });
  }
  unchecked.addEventListener('click', () => form.reportValidity() && send());

  const isHarmless = ({ result, warnings }) => HARMLESS.includes(result.verdict_level) && !warnings?.length;

  /** Shows the warnings in `answer` with the remedies. */
  function concern(answer) {
    const buttons = remedies(answer).map(([words, change, needsCheck]) =>
      button('button button-small', words, () => {
        change();
        if (needsCheck) form.requestSubmit();
        else send();
      }),
    );
    const anyway = button('button button-small', 'Train anyway', () => send(answer.id));
    showConcerns(region, answer, element('div', 'row', ...buttons, anyway));
    region.hidden = false;
    region.focus();
  }
}
