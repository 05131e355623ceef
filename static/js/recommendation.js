// The recommendation for the chosen dataset: fills in the form, offers the networks that can be used, and describes on
// the card what the form trains.

import { edits, labelsOf, markEdits } from './edited_fields.js';
import { fill } from './fill_fields.js';
import { duration, listed } from './format.js';
import { getJson, urlPrefix } from './http.js';

const LABELS_SHOWN = 4;
const MINUTE = 60; // seconds

/**
  * Initializes the card and the choice of a network in `form`. Returns functions: `isApplied(name)` returns whether a
  * field has the recommended value; `restore()` applies the recommendation, which `advice()` describes unless it is
  * applied; `keepSettings()` makes a custom network keep the current settings; `measured(seconds)` shows a time that
  * was measured with the current settings; `estimated(words)` shows the accuracy to expect of the recommendation;
  * `weights()` returns the name of the ImageNet weights that the form uses, or "". `request()` is to be called when the
  * dataset has changed. `changed()` is called when the choice may have changed.
 */
export function startRecommendation(form, datasets, changed) {
  const card = document.getElementById('card');
  const part = (name) => card.querySelector(`[data-${name}]`);
  const radios = [...form.querySelectorAll('[name="standard_networks"]')];
  const { fine_tune: tuning, dataset } = form.elements;
  // {network, headline, reason, time, download, networks: {id: {settings, random, refusal}}, fine_tune}, or null.
  let best = JSON.parse(document.getElementById('recommendation-data').textContent);
  let source = card.dataset.source ?? '';
  let expected = null; // The recommended settings for the chosen network.
  let seconds = null;
  let accuracy = ''; // in words
  let isApplying = false;
  let keepsSettings = !form.hasAttribute('data-fitted') || form.elements.custom_network.value !== form.elements.custom_network.defaultValue;

  const method = () => form.elements.method.value;
  const network = () => radios.find(({ checked }) => checked);
  const weights = () => (network()?.dataset.pretrained ? form.elements.initial_weights.value : 'random');
  const isTuned = () => tuning.checked && !tuning.matches(':disabled');
  const defaults = () => Object.fromEntries(JSON.parse(form.querySelector('[name="method"][value="custom"]').dataset.settings));

  /** Returns the settings that are recommended for the chosen method, network and weights; null without a recommendation. */
  function wanted() {
    const tuned = isTuned();
    if (method() !== 'standard') return { ...defaults(), ...(tuned && best?.fine_tune), fine_tune: String(tuned) };
    const offered = best?.networks[network()?.value];
    if (!offered) return null;
    const { initial_weights: initial, fine_tune: tunes } = offered.settings;
    if (weights() === initial && String(tuned) === tunes) return offered.settings;
    return { ...offered.random, ...(tuned && best.fine_tune), fine_tune: String(tuned), initial_weights: weights() };
  }

  function apply(settings) {
    isApplying = true;
    // Twice, because changing the solver sets its usual learning rate, which must not replace the one in `settings`.
    for (let pass = 0; pass < 2; pass += 1) fill(form, settings);
    isApplying = false;
    expected = settings;
    show();
  }

  const isRecommended = () =>
    Boolean(best) && method() === 'standard' && network()?.value === best.network && !edits(form, best.networks[best.network].settings).length;

  function restore() {
    choose(form.querySelector('[name="method"][value="standard"]'));
    choose(radios.find(({ value }) => value === best.network));
    source = '';
    apply(best.networks[best.network].settings);
  }

  /* Options of the selected dataset, method and network ----------------------------------------------------------- */

  function offerNetworks() {
    for (const radio of radios) {
      const offered = best?.networks[radio.value];
      const box = radio.closest('.choice');
      box.hidden = !offered;
      box.querySelector('[data-duration]').textContent = offered && !offered.refusal ? offered.time : '';
      box.querySelector('[data-best]').hidden = radio.value !== best?.network;
      box.querySelector('[data-refusal]').textContent = offered?.refusal ?? '';
      // A disabled field would not be sent; the server refuses it with the reason.
      radio.disabled = Boolean(offered?.refusal) && !radio.checked;
    }
    if (!best && dataset.value) choose(form.querySelector('[name="method"][value="custom"]'));
    const kind = datasets.find(({ id }) => id === dataset.value)?.data_kind;
    const isFor = (kinds) => !kind || kinds.split(' ').includes(kind);
    for (const option of form.querySelectorAll('option[data-kinds]')) offerOption(option, isFor(option.dataset.kinds));
    for (const fields of form.querySelectorAll('[data-for-kinds]')) include(fields, isFor(fields.dataset.forKinds));
  }

  function offerWeights() {
    const pretrained = network()?.dataset.pretrained ?? '';
    const isStandard = method() === 'standard';
    const initial = isStandard ? weights() : '';
    includeSet('standard-weights', isStandard && pretrained !== '');
    includeSet('tuning-weights', method() === 'custom' || initial === 'file');
    includeSet('tuning', !isStandard || initial !== 'random');
    for (const note of form.querySelectorAll('[data-weights]')) note.hidden = initial !== 'imagenet' || note.dataset.weights !== pretrained;
    for (const about of form.querySelectorAll('[data-about]')) about.hidden = about.dataset.about !== network()?.value;
  }

  const isUsable = (radio) => Boolean(radio) && best?.networks[radio.value]?.refusal === '';

  /** Requests the recommendation, `fromScratch` without ImageNet weights, and applies it unless settings were changed. */
  async function request(fromScratch = false) {
    const id = dataset.value;
    const isWanted = fromScratch || isRecommended();
    const { recommendation } = await getJson(`${urlPrefix}/models/recommendation.json?dataset=${encodeURIComponent(id)}&from_scratch=${fromScratch}`);
    if (dataset.value !== id) return;
    best = recommendation;
    offerNetworks();
    if (best && (isWanted || (method() === 'standard' && !isUsable(network())))) restore();
    else {
      if (best && !isUsable(network())) choose(radios.find(({ value }) => value === best.network));
      if (expected) expected = wanted();
      show();
    }
  }

  form.addEventListener('change', ({ target }) => {
    if (isApplying) return;
    if (target.name === 'method') {
      // A custom network starts with the defaults, unless it is made from another one.
      const keeps = !expected || edits(form, expected).length > 0 || method() === 'previous' || (method() === 'custom' && keepsSettings);
      offerWeights();
      // Without weights of its own, a custom network has nothing to adapt.
      if (!keeps && method() === 'custom') tuning.checked = form.elements.custom_network_snapshot.value !== '';
      const settings = method() === 'standard' ? best?.networks[network()?.value]?.settings : wanted();
      if (!keeps && settings) apply(settings);
    } else if (target.name === 'standard_networks') apply(isTuned() && target.dataset.pretrained ? wanted() : best.networks[target.value].settings);
    else if (target.name === 'initial_weights') {
      tuning.checked = target.value !== 'random'; // pretrained weights are rarely used without fine-tuning
      announce(tuning);
    } else if (target === tuning) {
      offerWeights();
      apply(wanted());
    }
  });
  for (const type of ['input', 'change']) {
    form.addEventListener(type, ({ target }) => {
      if (isApplying || target.name === 'model_name') return;
      seconds = null;
      show();
    });
  }
  part('restore').addEventListener('click', () => {
    restore();
    form.querySelector('[type="submit"]').focus();
  });

  /* The card ------------------------------------------------------------ */

  function headline() {
    if (method() === 'custom') return 'Train your own network';
    if (method() === 'previous') {
      const radio = form.querySelector('[name="previous_networks"]:checked');
      if (!radio) return 'Choose a model';
      const name = `“${radio.dataset.title}”`;
      if (!form.elements[`${radio.value}-snapshot`]?.value) return `Train the network of ${name} from scratch`;
      return isTuned() ? `Fine-tune ${name}` : `Train ${name} further`;
    }
    const { words } = network().dataset;
    const from = { random: 'from scratch', imagenet: 'from ImageNet weights', file: 'from your weights' }[weights()];
    return `${weights() !== 'random' && tuning.checked ? 'Fine-tune' : 'Train'} ${words} ${from}`;
  }

  function reason(words) {
    if (source) return source;
    if (!best || words !== best.headline) return best ? `Recommended: ${best.headline.charAt(0).toLowerCase()}${best.headline.slice(1)}.` : '';
    const labels = labelsOf(form, edits(form, best.networks[best.network].settings));
    return `Changed: ${listed(labels, LABELS_SHOWN)}.`;
  }

  function say(name, words) {
    part(name).hidden = !words;
    part(name).querySelector('span').textContent = words;
  }

  function show() {
    offerWeights();
    markEdits(form, expected);
    const recommended = isRecommended();
    const words = recommended ? best.headline : headline();
    part('state').textContent = recommended ? 'Recommended' : 'Customized';
    part('state').className = `badge badge-plain ${recommended ? 'tone-success' : 'tone-info'}`;
    document.getElementById('headline').textContent = words;
    part('reason').textContent = recommended ? best.reason : reason(words);
    say('accuracy', recommended ? accuracy : '');
    const offered = method() === 'standard' && best?.networks[network()?.value];
    const usual = offered && !edits(form, offered.settings).length ? offered.time : '';
    say('time', seconds === null ? (recommended ? best.time : usual) : `About ${duration(MINUTE * Math.max(1, Math.round(seconds / MINUTE)))}, measured`);
    part('restore').hidden = recommended || !best;
    changed();
  }

  offerNetworks();
  offerWeights();
  if (form.hasAttribute('data-fitted')) expected = wanted();
  show();
  return {
    request,
    restore,
    weights: () => (method() === 'standard' && weights() === 'imagenet' ? network().dataset.pretrained : ''),
    advice: () => (best && !isRecommended() ? best.headline : ''),
    isApplied: (name) => Boolean(expected && name in expected && !edits(form, expected).includes(name)),
    keepSettings: () => (keepsSettings = true),
    measured(total) {
      seconds = total;
      show();
    },
    estimated(words) {
      accuracy = words;
      show();
    },
  };
}

/** Shows or hides an option. If the selected option is hidden, the list selects its first available one. */
function offerOption(option, fits) {
  option.hidden = option.disabled = !fits;
  const list = option.closest('select');
  if (fits || list.value !== option.value) return;
  list.selectedIndex = [...list.options].findIndex(({ disabled }) => !disabled);
  announce(list);
}

/** Shows or hides a part of the form. Disabled fields are not sent; the server then turns these options off. */
function include(part, fits) {
  part.hidden = !fits;
  for (const control of part.querySelectorAll('input, select')) control.disabled = !fits;
}

/** Shows or hides a fieldset. Hidden fields are not sent. */
function includeSet(id, fits) {
  const set = document.getElementById(id);
  set.hidden = set.disabled = !fits;
}

function choose(radio) {
  if (radio.checked) return;
  radio.checked = true;
  announce(radio);
}

const announce = (control) => control.dispatchEvent(new Event('change', { bubbles: true }));
