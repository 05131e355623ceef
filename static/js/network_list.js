// The list of standard networks: search, descriptions, and the recommended network, settings and choices for the dataset.

import { startNetworkSettings } from './network_settings.js';

/**
  * Initializes the list in `form`. Returns functions. `fit` is to be called when the dataset or the method has
  * changed: it hides networks of other kinds, and chooses the one that fits the dataset unless the user has chosen one.
  * After `keepSettings`, custom networks keep the settings of the network that they are made from.
 */
export function startNetworkList(form, datasets) {
  const search = document.getElementById('network-search');
  search?.addEventListener('input', () => find(form, search.value));
  // Enter would submit the form.
  search?.addEventListener('keydown', (event) => event.key === 'Enter' && event.preventDefault());

  const chosen = () => form.querySelector('[name="standard_networks"]:checked');
  const dataset = () => datasets.find(({ id }) => id === form.elements.dataset.value);
  // Clones and forms returned with errors keep their own settings.
  let isChosenByUser = !form.hasAttribute('data-fitted') || chosen()?.value !== dataset()?.recommendation?.network;
  let fitted = form.elements.dataset.value;
  let keepsSettings = form.elements.custom_network.value !== form.elements.custom_network.defaultValue;

  const settings = startNetworkSettings(form, document.getElementById('applied-settings'), () => {
    isChosenByUser = true;
    chooseFitting();
  });

  /** Returns the recommended settings of a network for the dataset, or those for `random` initial weights. */
  const settingsOf = (radio, adapted = dataset()?.adapted) => ({ ...Object.fromEntries(JSON.parse(radio.dataset.settings)), ...adapted?.[radio.value] });

  const defaults = () => Object.fromEntries(JSON.parse(form.querySelector('[name="method"][value="custom"]').dataset.settings));

  /** Applies the settings of Fine-tune for the dataset, which replace those of the chosen network, or restores these. */
  function fineTune(tuned) {
    const { initial_weights: weights, ...base } =
      form.elements.method.value === 'standard' && chosen() ? settingsOf(chosen(), dataset()?.random) : defaults();
    settings.apply(tuned ? 'Fine-tune' : (chosen()?.dataset.title ?? 'Default'), { ...base, ...(tuned && dataset()?.fine_tune) });
  }

  const apply = (radio, also = {}, words = {}) => settings.apply(radio.dataset.title, { ...also, ...settingsOf(radio) }, words);

  /** Applies the defaults for a custom network or the recommended settings for a standard one, unless fields are edited. */
  function changeMethod() {
    if (settings.isEdited()) return;
    const { value } = form.elements.method;
    if (value === 'standard' && chosen()) apply(chosen());
    if (value === 'custom' && !keepsSettings) settings.apply('Default', defaults(), { lead: 'A custom network starts with' });
  }

  form.addEventListener('change', ({ target }) => {
    if (target.name === 'method') changeMethod();
    if (target.name !== 'standard_networks') return;
    showAbout(form, target.value);
    if (settings.isApplying()) return;
    isChosenByUser = true;
    const tuned = form.elements.fine_tune;
    if (tuned.checked && !tuned.matches(':disabled') && target.dataset.pretrained) fineTune(true);
    else apply(target);
  });
  form.addEventListener('click', ({ target }) => {
    if (target.closest('[data-apply]')) apply(chosen(), {}, { otherwise: 'These settings are already applied.' });
  });

  function showFitting() {
    const kind = dataset()?.data_kind;
    for (const card of cards(form)) card.dataset.fits = String(!kind || card.dataset.kinds.split(' ').includes(kind));
    for (const option of form.querySelectorAll('option[data-kinds]')) offer(option, !kind || option.dataset.kinds.split(' ').includes(kind));
    for (const part of form.querySelectorAll('[data-for-kinds]')) include(part, isFor(part, kind));
    find(form, search?.value ?? '');
  }

  const isFitting = (radio) => radio?.closest('.choice').dataset.fits === 'true';

  /** Returns the recommended network for the dataset. */
  function wanted() {
    const radios = cards(form).map((card) => card.querySelector('input')).filter(isFitting);
    return radios.find(({ value }) => value === dataset()?.recommendation?.network) ?? radios[0];
  }

  function chooseFitting() {
    if (!isFitting(chosen()) && wanted()) wanted().checked = true;
    if (chosen()) showAbout(form, chosen().value);
  }

  function fit() {
    showFitting();
    const isStandard = form.elements.method.value === 'standard';
    if (!isFitting(chosen())) isChosenByUser = false;
    if (!isStandard) chooseFitting();
    if (!isStandard || isChosenByUser || fitted === form.elements.dataset.value) return;
    fitted = form.elements.dataset.value;
    const radio = wanted();
    if (radio) apply(radio, { standard_networks: radio.value });
  }

  showFitting();
  chooseFitting(); // The browser may have restored a different choice from the server's.
  if (!form.hasAttribute('data-fitted')) keepsSettings = true;
  else if (form.elements.method.value === 'custom') settings.expect('Default', defaults());
  else if (chosen()) settings.expect(chosen().dataset.title, settingsOf(chosen()));
  return { fit, fineTune, isApplied: settings.isApplied, isApplying: settings.isApplying, keepSettings: () => (keepsSettings = true) };
}

/** Shows or hides an option. If the selected option is hidden, the list selects its first available one. */
function offer(option, fits) {
  option.hidden = option.disabled = !fits;
  const list = option.closest('select');
  if (fits || list.value !== option.value) return;
  list.selectedIndex = [...list.options].findIndex(({ disabled }) => !disabled);
  list.dispatchEvent(new Event('change', { bubbles: true }));
}

const isFor = (part, kind) => !kind || part.dataset.forKinds.split(' ').includes(kind);

/** Shows or hides a part of the form. Disabled fields are not sent; the server then turns these options off. */
function include(part, fits) {
  part.hidden = !fits;
  for (const control of part.querySelectorAll('input, select')) control.disabled = !fits;
}

const cards = (form) => [...form.querySelectorAll('#networks .choice')];

function find(form, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const card of cards(form)) {
    const about = card.textContent.toLowerCase();
    card.hidden = card.dataset.fits === 'false' || !words.every((word) => about.includes(word));
    found += !card.hidden;
  }
  const status = document.getElementById('network-found');
  if (status) status.textContent = words.length ? `${found} found` : '';
}

function showAbout(form, id) {
  for (const about of form.querySelectorAll('[data-about]')) about.hidden = about.dataset.about !== id;
}
