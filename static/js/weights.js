// The ImageNet weights of the chosen network: downloads them as soon as they are recommended, and before a training.

import { getJson, postForm, uniqueName, urlPrefix } from './http.js';
import { reveal } from './reveal.js';

const SECOND = 1000;
const NO_TENSORFLOW = 503; // the page says so

/**
  * `chosen()` returns the name of the ImageNet weights that the form uses, or "". `fromScratch()` is called when the
  * user does without them, and `ready()` waits for the form. Returns `obtain()`, which resolves to whether the training can start, and `show()`, to be
  * called when the choice has changed.
 */
export function startWeights(form, { chosen, fromScratch, ready }) {
  const line = document.getElementById('weights-download');
  const [words, fill] = ['[data-words]', '.progress-fill'].map((part) => line.querySelector(part));
  const notice = () => form.querySelector('[data-missing]'); // if the server lacks the chosen weights
  const downloads = new Map(); // promises by name
  const [obtained, failed] = [new Set(), new Set()];

  function show() {
    line.hidden = !downloads.has(chosen());
    if (notice()) notice().hidden = !failed.has(chosen());
  }

  async function download(name) {
    failed.delete(name);
    words.textContent = 'Downloading the ImageNet weights…';
    fill.style.setProperty('--value', 0);
    const watch = uniqueName();
    const timer = setInterval(async () => {
      const { doing, progress } = await getJson(`${urlPrefix}/models/preflight/progress?watch=${watch}`).catch(() => ({}));
      if (!doing || name !== chosen()) return;
      if (words.textContent !== doing) words.textContent = doing;
      fill.style.setProperty('--value', progress);
    }, SECOND);
    try {
      await postForm(`${urlPrefix}/models/weights/${name}`, { watch });
      obtained.add(name);
    } catch (error) {
      if (error.status !== NO_TENSORFLOW) failed.add(name);
    } finally {
      clearInterval(timer);
      downloads.delete(name);
      show();
    }
  }

  async function obtain() {
    const name = chosen();
    if (!notice() || obtained.has(name)) return true;
    if (!downloads.has(name)) downloads.set(name, download(name));
    show();
    await downloads.get(name);
    return !failed.has(name);
  }

  async function upload() {
    form.querySelector('[name="initial_weights"][value="file"]').click();
    await ready();
    const files = form.querySelector('#tuning-weights [data-upload-files]');
    reveal(files);
    files.focus();
  }

  form.addEventListener('click', ({ target }) => {
    if (target.closest('[data-weights-retry]')) obtain();
    if (target.closest('[data-weights-scratch]')) fromScratch();
    if (target.closest('[data-weights-upload]')) upload();
  });
  return { obtain, show };
}
