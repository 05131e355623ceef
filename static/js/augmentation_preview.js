// Previews the form's augmentation on images of the selected dataset. A server task prepares them as for training.

import { settled } from './form_parts.js';
import { request } from './http.js';

const WAIT_MILLISECONDS = 400;
const IS_SETTING = /^(aug_|use_mean$|crop_size$|dataset$)/;

/** Updates the preview in `box` while its section of `form` is open. */
export function startAugmentationPreview(form, box) {
  const section = box.closest('details');
  const status = box.querySelector('[role="status"]');
  const pictures = box.querySelector('[data-pictures]');
  // The server cancels the task of any earlier request from this form.
  const name = [...crypto.getRandomValues(new Uint32Array(4))].join('');
  let seed = 0;
  let shown = '';
  let pending = null;

  async function update() {
    if (!section.open || box.closest('[hidden]') || !form.elements.dataset.value) return;
    const fields = settingsOf(form, seed);
    const settings = new URLSearchParams(fields).toString();
    if (settings === shown) return;
    shown = settings;
    pending?.abort();
    const current = (pending = new AbortController());
    fields.set('form', name);
    pictures.setAttribute('aria-busy', 'true');
    status.textContent = 'Augmenting images…';
    try {
      const response = await request(box.dataset.url, { method: 'POST', body: fields, signal: current.signal, headers: { Accept: 'text/html, application/json' } });
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      if (current !== pending) return;
      pictures.replaceChildren(...page.body.children);
      status.textContent = seed ? `Random variants ${seed + 1}.` : 'Random variants with a fixed seed.';
    } catch (error) {
      if (current !== pending) return;
      pictures.replaceChildren();
      status.textContent = [error.message, error.hint].filter(Boolean).join(' ');
      shown = ''; // a retry may succeed
    } finally {
      if (current === pending) pictures.removeAttribute('aria-busy');
    }
  }

  const updateSoon = settled(update, WAIT_MILLISECONDS);
  for (const type of ['input', 'change']) form.addEventListener(type, ({ target }) => IS_SETTING.test(target.name ?? '') && updateSoon());
  section.addEventListener('toggle', update);
  box.querySelector('[data-more]').addEventListener('click', () => {
    seed += 1;
    update();
  });
  update();
}

function settingsOf(form, seed) {
  const fields = new FormData();
  for (const [name, value] of new FormData(form)) if (IS_SETTING.test(name)) fields.append(name, value);
  fields.set('seed', seed);
  return fields;
}
