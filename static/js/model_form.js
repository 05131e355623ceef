// The form of a new model: dataset, network, training, device.

import { startAccuracyProbe } from './accuracy_probe.js';
import { startDatasetSearch, startModelSearch } from './choice_search.js';
import { confirmed, toast } from './dialog.js';
import { startAugmentationPreview } from './augmentation_preview.js';
import { startComputeTarget } from './compute_target.js';
import { startCreatingJob } from './create_job.js';
import { startCreating } from './create_model.js';
import { startDevices } from './device_choice.js';
import { fill } from './fill_fields.js';
import { startFormMemory } from './form_memory.js';
import { startReveals, startSuggestedName, startVariants } from './form_parts.js';
import { startSections } from './form_sections.js';
import { postForm, request, urlPrefix } from './http.js';
import { startLrPreview } from './lr_preview.js';
import { startPreflight } from './preflight.js';
import { startRecommendation } from './recommendation.js';
import { startSolver } from './solver.js';
import { startSweep } from './sweep.js';
import { startVisualizing } from './visualize.js';
import { startWeights } from './weights.js';

const form = document.getElementById('model-form');
const datasets = form ? JSON.parse(document.getElementById('datasets-data').textContent) : [];
if (form) start();

function start() {
  const text = form.elements.custom_network;
  // defaultValue is the text last loaded into the editor; only changes to it can be lost.
  const isChanged = () => text.value.trim() !== '' && text.value !== text.defaultValue;
  const memory = startFormMemory(form, isChanged);
  let editor = null;

  const method = () => form.elements.method.value;
  const chosen = (name) => form.querySelector(`input[name="${name}"]:checked`);

  async function openEditor() {
    if (editor) return editor;
    const { mountEditor } = await import('./editor.js');
    editor ??= mountEditor(text, document.getElementById('editor-problems'));
    return editor;
  }

  function showMethod() {
    for (const radio of form.querySelectorAll('[data-shows]')) {
      document.getElementById(radio.dataset.shows).hidden = !radio.checked;
    }
    if (method() === 'custom') openEditor();
  }

  async function textOf(network) {
    return (await postForm(`${urlPrefix}/models/customize?network=${encodeURIComponent(network)}`, {})).network;
  }

  async function customize(network) {
    const fill = async () => {
      const fresh = (await textOf(network)).replaceAll('\r\n', '\n');
      form.elements.method.value = 'custom';
      // The server finds files that the network loads in the folder of the customized model.
      for (const radio of form.querySelectorAll('[name="previous_networks"]')) radio.checked = radio.value === network;
      recommendation.keepSettings();
      showMethod();
      text.defaultValue = fresh;
      (await openEditor()).setText(fresh);
      editor.focus();
    };
    if (isChanged()) {
      await confirmed({
        title: 'Replace your network?',
        text: 'Your changes to the network in the editor will be lost.',
        yes: 'Replace',
        keep: 'Keep my network',
        action: fill,
      });
    } else {
      await fill().catch((error) => toast(error.message, 'danger'));
    }
    suggest();
  }

  const suggest = startSuggestedName(form.elements.model_name, () => {
    const dataset = form.elements.dataset.selectedOptions[0]?.text ?? '';
    const earlier = chosen('previous_networks')?.dataset.title ?? '';
    const names = { standard: chosen('standard_networks')?.dataset.title, previous: earlier.split(' on ')[0], custom: 'My network' };
    const name = dataset ? `${names[method()] || 'Network'} on ${dataset}` : '';
    return name && name === earlier ? `${name} 2` : name;
  });

  async function request(fromScratch = false) {
    try {
      await recommendation.request(fromScratch);
    } catch (error) {
      toast(error.message, 'danger');
    }
    suggest();
    await weights.obtain();
    accuracy.probe();
  }

  form.addEventListener('click', (event) => {
    const button = event.target.closest('[data-customize]');
    if (!button) return;
    event.preventDefault();
    customize(button.dataset.customize);
  });
  form.addEventListener('change', (event) => {
    if (event.target.name === 'method') showMethod();
    if (event.target.name === 'dataset') showDataset(form.elements.dataset.value);
    if (event.target.name === 'dataset') request();
    suggest();
  });

  startReveals(form);
  startVariants(form, form.elements.lr_policy, 'policy');
  startVariants(form, form.elements.solver_type, 'solver');
  startVariants(form, form.elements.early_stopping_metric, 'stopping');
  startSections(form);
  startSolver(form, form.elements.solver_type, (name) => recommendation.isApplied(name));
  startComputeTarget(form);
  startDevices(form);
  startDatasetSearch(form, datasets);
  startModelSearch(form);
  let weights = null;
  const recommendation = startRecommendation(form, datasets, () => weights?.show());
  weights = startWeights(form, { chosen: recommendation.weights, fromScratch: () => request(true) });
  const hasClasses = () => datasets.some(({ id, data_kind: kind, running }) => id === form.elements.dataset.value && kind === 'image-classification' && !running);
  const accuracy = startAccuracyProbe(form, () => (hasClasses() ? weights.atHand() : ''), recommendation.estimated);
  weights.obtain().then(accuracy.probe);
  form.addEventListener('submit', accuracy.stop);
  startAugmentationPreview(form, document.getElementById('augmentation-preview'));
  startLrPreview(form, document.getElementById('lr-preview'));

  const result = document.getElementById('visualize-result');
  const focusEditor = async () => (await openEditor()).focus();
  const failed = async ({ line, message }) => line && method() === 'custom' && (await openEditor()).mark(line, message);
  const network = () => (method() === 'custom' ? text.value : textOf(chosen(`${method()}_networks`)?.value ?? ''));
  startVisualizing(form, document.getElementById('visualize'), result, { network, failed });
  const beforeTraining = document.getElementById('train-result');
  const focus = { custom_network: focusEditor };
  const passed = (answer) => Number.isFinite(answer.result.seconds_total) && recommendation.measured(answer.result.seconds_total);
  const check = startPreflight(form, document.getElementById('preflight'), result, beforeTraining, { failed, focus, passed });
  const job = startCreatingJob(form, { memory, focus });
  startCreating(form, beforeTraining, check, job, weights.obtain, (answer) => {
    const advice = recommendation.advice();
    const fields = (answer.remedies ?? []).map(({ words, fields: values }) => [words, () => fill(form, values)]);
    return [...(advice ? [[`${advice} instead`, recommendation.restore]] : []), ...fields];
  });
  startSweep(form, document.getElementById('sweep'), form.querySelector('[type="submit"]'));
  showMethod();
  showDataset(form.elements.dataset.value);
  suggest();
}

/** A one-line description of the chosen dataset, with its mean image. */
async function showDataset(id) {
  const summary = document.getElementById('dataset-summary');
  const row = datasets.find((dataset) => dataset.id === id);
  summary.textContent = row ? `${row.detail}${row.running ? ' · not ready yet; training will wait for it' : ''}` : '';
  if (!row || row.running) return;
  try {
    const answer = await request(`${urlPrefix}/datasets/summary?job_id=${encodeURIComponent(id)}`, { headers: { Accept: 'text/html' } });
    const text = await answer.text();
    if (form.elements.dataset.value === id) summary.innerHTML = text;
  } catch {
    // The line above is sufficient.
  }
}
