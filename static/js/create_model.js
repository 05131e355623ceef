// Create model: runs the preflight first, so that errors are shown in the form instead of after hours in the queue.

// Without TensorFlow on the server, or before the dataset is finished, the check is not possible.
const CANNOT_CHECK = [503, 409];
// A check usually takes a second; offer to skip it only if it takes longer.
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
    unchecked.hidden = Boolean(error?.errors); // invalid fields would be rejected anyway
    job.free();
  });
  unchecked.addEventListener('click', () => form.reportValidity() && send());
}
