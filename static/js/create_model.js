// Create: one real step is taken first, so that a mistake comes back into the form and not, hours later, out of a queue.

// The server has no TensorFlow, or the dataset is still being made: there is nothing to check with.
const CANNOT_CHECK = [503, 409];
// A check takes a second as a rule; only a long one is worth a way around it.
const PATIENCE_MILLISECONDS = 2000;

/** `check()` runs the preflight once `region` is idle and returns {answer} or {error}. `job` submits the form. */
export function startCreating(form, region, check, job) {
  const unchecked = document.getElementById('create-unchecked');

  function send(id = '') {
    form.querySelector('[name="preflight"]').value = id;
    return job.send();
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const isBusy = region.getAttribute('aria-busy') === 'true';
    job.busy(isBusy ? 'Waiting for the current operation…' : 'Checking one training step first…');
    const offer = setTimeout(() => (unchecked.hidden = false), PATIENCE_MILLISECONDS);
    const { answer, error } = await check();
    clearTimeout(offer);
    if (answer && answer.result.verdict_level !== 'bad') return send(answer.id);
    if (CANNOT_CHECK.includes(error?.status)) return send();
    unchecked.hidden = Boolean(error?.body?.errors); // what the fields ask for is refused anyway
    job.free();
  });
  unchecked.addEventListener('click', () => form.reportValidity() && send());
}
