// Previews the form's augmentation on images of the selected dataset. A server task prepares them as for training.

import { settled } from './settled.js';
import { uniqueName, wordsOf } from './http.js';
import { fragment, swapping } from './swap.js';

const WAIT_MILLISECONDS = 400;
const IS_SETTING = /^(aug_|use_mean$|crop_size$|dataset$)/;

/** Updates the preview in `box` while its section of `form` is open; returns a function that does so after other changes. */
export function startAugmentationPreview(form, box) {
  const section = box.closest('details');
  const status = box.querySelector('[role="status"]');
  const pictures = box.querySelector('[data-pictures]');
  // The server cancels the task of any earlier request from this form.
  const name = uniqueName();
  let seed = 0;
  let shown = '';
  const swap = swapping(pictures, (error) => {
    pictures.replaceChildren();
    status.textContent = wordsOf(error);
    shown = ''; // a retry may succeed
  });

  function update() {
    if (!section.open || box.closest('[hidden]') || !form.elements.dataset.value) return;
    const fields = settingsOf(form, seed);
    const settings = new URLSearchParams(fields).toString();
    if (settings === shown) return;
    shown = settings;
    fields.set('form', name);
    status.textContent = 'Augmenting images…';
    swap(
      (signal) => fragment(box.dataset.url, { method: 'POST', body: fields, signal, headers: { Accept: 'text/html, application/json' } }),
      (fresh) => {
        pictures.replaceChildren(fresh);
        status.textContent = seed ? `Random variants ${seed + 1}.` : 'Random variants with a fixed seed.';
      },
    );
  }

  const updateSoon = settled(update, WAIT_MILLISECONDS);
  section.addEventListener('toggle', update);
  box.querySelector('[data-more]').addEventListener('click', () => {
    seed += 1;
    update();
  });
  update();
  return updateSoon;
}

function settingsOf(form, seed) {
  const fields = new FormData();
  for (const [name, value] of new FormData(form)) if (IS_SETTING.test(name)) fields.append(name, value);
  fields.set('seed', seed);
  return fields;
}
