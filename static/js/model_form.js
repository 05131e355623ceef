// The form of a new model, which the server fills in (answered_form.js): editor, charts, checks and downloads.

import { startAnsweredForm } from './answered_form.js';
import { startAugmentationPreview } from './augmentation_preview.js';
import { startCreatingJob } from './create_job.js';
import { confirmed, toast } from './dialog.js';
import { startFormMemory } from './form_memory.js';
import { reveal } from './reveal.js';
import { duration } from './format.js';
import { postForm, urlPrefix } from './http.js';
import { startLrPreview } from './lr_preview.js';
import { startPreflight } from './preflight.js';
import { startUploadFields } from './upload_field.js';
import { startVisualizing } from './visualize.js';
import { startWeights } from './weights.js';

const MINUTE = 60; // seconds

const form = document.getElementById('model-form');
if (form) start();

function start() {
  const text = form.elements.custom_network;
  // defaultValue is the text last loaded into the editor; only changes to it can be lost.
  const isChanged = () => text.value.trim() !== '' && text.value !== text.defaultValue;
  const memory = startFormMemory(form, isChanged);
  const method = () => form.elements.method.value;
  const submit = form.querySelector('[type="submit"]');
  let editor = null;
  let dataset = form.elements.dataset.value;

  async function openEditor() {
    const { mountEditor } = await import('./editor.js');
    editor ??= mountEditor(text, document.getElementById('editor-problems'));
    return editor;
  }

  /* The answers of the server */

  const fields = startAnsweredForm(form, {
    ignored: [text.name, 'eager'],
    answered,
    problem: (words) => (document.getElementById('form-problem').textContent = words),
  });
  const drawRates = startLrPreview(document.getElementById('lr-preview'));
  const preview = startAugmentationPreview(form, document.getElementById('augmentation-preview'));
  const weights = startWeights(form, { chosen: () => document.getElementById('card').dataset.imagenet, fromScratch: () => recommend('1'), ready: fields.ready });
  startUploadFields(form);

  function answered() {
    if (method() === 'custom') openEditor();
    drawRates();
    preview();
    if (form.elements.dataset.value === dataset) return weights.show();
    dataset = form.elements.dataset.value;
    weights.obtain();
  }

  // The settings of a schedule are among those that are folded.
  form.elements.lr_policy.addEventListener('change', async ({ target }) => {
    await fields.ready();
    const own = form.querySelector(`[data-field^="lr_${target.value}_"]`);
    if (own) own.closest('details').open = true;
  });

  /** Applies the recommendation to all fields, without ImageNet weights if training starts `fromScratch`. */
  function recommend(fromScratch = form.elements.from_scratch.value) {
    form.elements.own.value = form.elements.source.value = '';
    form.elements.from_scratch.value = fromScratch;
    form.elements.method.value = 'standard';
    return fields.ask();
  }

  /** Shows the errors of the form at their fields; returns the first field with one. */
  async function showErrors() {
    form.elements.checked.value = '1';
    await fields.ask();
    const messages = [...form.querySelectorAll('[data-field] .error-text[id]')];
    messages.forEach(reveal);
    return messages[0]?.closest('[data-field]');
  }

  async function focusFirstError() {
    const field = await showErrors();
    if (field?.dataset.field === text.name) return focusEditor();
    (field?.querySelector('[aria-invalid="true"]') ?? field?.querySelector('input, select, textarea') ?? document.getElementById('form-errors'))?.focus();
  }

  form.addEventListener('click', ({ target }) => {
    const customized = target.closest('[data-customize]')?.dataset.customize;
    if (customized) customize(customized);
    if (!target.closest('[data-restore]')) return;
    recommend();
    submit.focus();
  });
  // Enter in a search chooses the first result.
  form.addEventListener('keydown', async (event) => {
    if (event.key !== 'Enter' || event.target.type !== 'search') return;
    event.preventDefault();
    await fields.ready();
    const { dataset: select } = form.elements;
    if (event.target.name === 'previous_search') return form.querySelector('[name="previous_networks"]:not(:checked)')?.click();
    select.selectedIndex = 0;
    select.dispatchEvent(new Event('change', { bubbles: true }));
    select.focus();
  });
  // The address names the choices, which may not be among the newest ones after a reload.
  form.addEventListener('change', ({ target }) => {
    const name = { dataset: 'dataset', previous_networks: 'previous' }[target.name];
    if (!name) return;
    const url = new URL(location.href);
    url.searchParams.set(name, target.value);
    history.replaceState(history.state, '', url);
  });

  /* The editor */

  const focusEditor = async () => (await openEditor()).focus();
  const textOf = async (name) => (await postForm(`${urlPrefix}/models/customize?network=${encodeURIComponent(name)}`, {})).network;

  async function customize(name) {
    const fill = async () => {
      const fresh = (await textOf(name)).replaceAll('\r\n', '\n');
      form.elements.method.value = 'custom';
      form.elements.customized.value = name;
      // The server finds files that the network loads in the folder of the customized model.
      for (const radio of form.querySelectorAll('[name="previous_networks"]')) radio.checked = radio.value === name;
      await fields.ask();
      text.defaultValue = fresh;
      (await openEditor()).setText(fresh);
      editor.focus();
    };
    if (!isChanged()) return fill().catch((error) => toast(error.message, 'danger'));
    return confirmed({
      title: 'Replace your network?',
      text: 'Your changes to the network in the editor will be lost.',
      yes: 'Replace',
      keep: 'Keep my network',
      action: fill,
    });
  }

  /* Checks, and the training */

  const result = document.getElementById('visualize-result');
  const failed = async ({ line, message }) => line && method() === 'custom' && (await openEditor()).mark(line, message);
  const network = () => (method() === 'custom' ? text.value : textOf(form.elements[`${method()}_networks`]?.value ?? ''));
  startVisualizing(form, document.getElementById('visualize'), result, { network, failed });

  function passed({ result: { seconds_total: seconds } }) {
    if (!Number.isFinite(seconds)) return;
    const time = form.querySelector('[data-time]');
    time.hidden = false;
    time.lastElementChild.textContent = `About ${duration(MINUTE * Math.max(1, Math.round(seconds / MINUTE)))}, measured`;
  }

  startPreflight(form, document.getElementById('preflight'), result, { failed, refused: focusFirstError, passed });
  const job = startCreatingJob(form, { memory, refused: focusFirstError });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    job.busy('Waiting for the weights…');
    await fields.ready();
    if (await weights.obtain()) job.send();
    else job.free('The weights are missing.', 'danger');
  });

  if (method() === 'custom') openEditor();
  const { line, message } = document.getElementById('editor').dataset; // of the training whose settings these are
  failed({ line: Number(line), message });
  weights.obtain();
  fields.ask(); // what was restored may need other fields
}
