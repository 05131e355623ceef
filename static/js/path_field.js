// Completes server paths while typing: a combobox for inputs with data-path, "folder" or "any".

import { element } from './element.js';
import { settled } from './settled.js';
import { getJson, urlPrefix } from './http.js';

const WAIT_MILLISECONDS = 120;
let count = 0;

export function startPathFields(root = document) {
  for (const input of root.querySelectorAll('input[data-path]')) complete(input);
}

function complete(input) {
  const list = element('ul', { class: 'suggestions', id: `suggestions-${(count += 1)}`, role: 'listbox', 'aria-label': 'Matching paths', hidden: true });
  input.after(list);
  input.setAttribute('role', 'combobox');
  input.setAttribute('aria-autocomplete', 'list');
  input.setAttribute('aria-controls', list.id);
  input.setAttribute('aria-expanded', 'false');

  let current = -1;
  let asked = 0;

  const close = () => {
    list.hidden = true;
    current = -1;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  };

  const mark = (index) => {
    const options = [...list.children];
    current = options.length ? (index + options.length) % options.length : -1;
    options.forEach((option, at) => option.setAttribute('aria-selected', String(at === current)));
    if (current < 0) return;
    input.setAttribute('aria-activedescendant', options[current].id);
    options[current].scrollIntoView({ block: 'nearest' });
  };

  const take = (path) => {
    input.value = path;
    input.dispatchEvent(new Event('change', { bubbles: true }));
    close();
    ask();
  };

  const show = (paths) => {
    current = -1;
    list.replaceChildren(...paths.slice(0, 50).map((path, index) => option(list.id, path, index)));
    const isComplete = paths.length === 1 && withoutSlash(paths[0]) === withoutSlash(input.value.trim());
    const open = paths.length > 0 && document.activeElement === input && !isComplete;
    list.hidden = !open;
    input.setAttribute('aria-expanded', String(open));
  };

  const ask = async () => {
    const number = (asked += 1);
    try {
      const answer = await getJson(`${urlPrefix}/autocomplete/path?${new URLSearchParams({ query: input.value, type: input.dataset.path })}`);
      if (number === asked) show((answer.suggestions ?? []).map((item) => item.value ?? item));
    } catch {
      close(); // Completion is optional: the form itself reports invalid paths.
    }
  };

  input.addEventListener('input', settled(ask, WAIT_MILLISECONDS));
  input.addEventListener('focus', ask);
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    if (list.hidden) return;
    const keys = {
      ArrowDown: () => mark(current + 1),
      ArrowUp: () => mark(current < 0 ? -1 : current - 1),
      Escape: close,
      Enter: current >= 0 ? () => take(list.children[current].textContent) : null,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  list.addEventListener('mousedown', (event) => {
    event.preventDefault(); // The input keeps the focus.
    const chosen = event.target.closest('li');
    if (chosen) take(chosen.textContent);
  });
}

const withoutSlash = (path) => path.replace(/\/+$/, '');

function option(listId, path, index) {
  return element('li', { id: `${listId}-${index}`, role: 'option', 'aria-selected': false }, path);
}
