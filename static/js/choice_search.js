// Search fields of the model form for datasets and models beyond the newest ones.

import { toast } from './dialog.js';
import { settled } from './form_parts.js';
import { getJson, urlPrefix } from './http.js';
import { morphChildren } from './morph.js';
import { fragment } from './swap.js';

const TYPING_MILLISECONDS = 200;

/** Replaces the options of the field `dataset` with the search results, and adds their rows to `datasets`. */
export function startDatasetSearch(form, datasets) {
  const { dataset: select } = form.elements;
  start('dataset-search', {
    async find(words, isLatest) {
      const { datasets: rows, more } = await getJson(`${urlPrefix}/models/dataset-choices.json?q=${words}`);
      if (!isLatest()) return;
      datasets.push(...rows.filter(({ id }) => !datasets.some((known) => known.id === id)));
      const chosen = select.selectedOptions[0];
      const others = rows.filter(({ id }) => id !== chosen?.value);
      select.replaceChildren(...(chosen ? [chosen] : []), ...others.map(({ id, name }) => new Option(name, id)));
      const count = `${rows.length.toLocaleString('en')}${more ? ' or more' : ''} found`;
      document.getElementById('dataset-found').textContent = count;
      return rows[0]?.id;
    },
    choose(id) {
      select.value = id;
      select.dispatchEvent(new Event('change', { bubbles: true }));
      select.focus();
    },
  });
  keepInAddress(form, 'dataset-search', 'dataset', 'dataset');
}

/** Replaces the list of previous models with those for another dataset or a search, keeping the selected one. */
export function startModelSearch(form) {
  const list = document.getElementById('previous-list');
  const radios = () => [...list.querySelectorAll('[name="previous_networks"]')];
  const findNow = start('previous-search', {
    async find(words, isLatest) {
      const chosen = radios().find(({ checked }) => checked)?.value ?? '';
      const url = `${urlPrefix}/models/network-choices?q=${words}&chosen=${chosen}&dataset=${form.elements.dataset.value}`;
      const fresh = await fragment(url);
      if (!isLatest()) return;
      morphChildren(list, fresh);
      document.getElementById('previous-search').hidden = !('searchable' in document.getElementById('previous-found').dataset);
      return radios().find(({ value }) => value !== chosen)?.value ?? chosen;
    },
    choose(id) {
      const radio = radios().find(({ value }) => value === id);
      radio.click();
      radio.focus();
    },
  });
  form.elements.dataset.addEventListener('change', findNow);
  keepInAddress(form, 'previous-search', 'previous_networks', 'previous');
}

/** Searches while the user types; Enter selects the first result. Returns a function that searches again. */
function start(id, { find, choose }) {
  const search = document.getElementById(id);
  if (!search) return;
  let asked = 0;
  const findNow = async () => {
    const number = (asked += 1);
    try {
      return await find(encodeURIComponent(search.value.trim()), () => number === asked);
    } catch (error) {
      toast(error.message, 'danger');
    }
  };
  search.addEventListener('input', settled(findNow, TYPING_MILLISECONDS));
  search.addEventListener('keydown', async (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault(); // Enter would submit the form.
    const first = await findNow();
    if (first) choose(first);
  });
  return findNow;
}

/** Stores the choice in the URL, so that it is still listed after a reload. */
function keepInAddress(form, search, field, name) {
  if (!document.getElementById(search)) return;
  form.addEventListener('change', ({ target }) => {
    if (target.name !== field) return;
    const url = new URL(location.href);
    url.searchParams.set(name, target.value);
    history.replaceState(history.state, '', url);
  });
}
