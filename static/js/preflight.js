// Has the server take one real step with the form's settings, and shows what it says of the whole training.

import { startAsking } from './ask_network.js';
import { clearFieldErrors, showFieldErrors, wordsOf } from './field_errors.js';
import { postForm, urlPrefix } from './http.js';
import { element, notice, showPreflight } from './preflight_result.js';

/**
 * `failed(fault)` is told about a mistake in the network; `focus` has ways to focus odd fields, by name.
 * Answers a function that checks without a click, and answers {answer} or {error}.
 */
export function startPreflight(form, button, region, { failed, focus }) {
  return startAsking(button, region, {
    doing: 'Taking one step…',
    ask() {
      clearFieldErrors(form);
      return postForm(`${urlPrefix}/models/preflight`, new FormData(form));
    },
    show: showPreflight,
    failed,
    refused(place, error) {
      const errors = error.body?.errors;
      if (!errors) return false;
      place.replaceChildren(mistakes(wordsOf(form, errors)));
      showFieldErrors(form, errors, focus);
      return true;
    },
  });
}

function mistakes(items) {
  const box = notice('tone-danger', '');
  box.setAttribute('role', 'alert');
  const list = element('ul', 'plain');
  for (const { label, text, id } of items) {
    const item = element('li', '');
    if (id) {
      const link = element('a', '', label);
      link.href = `#${id}`;
      item.append(link, `: ${text}`);
    } else item.textContent = `${label}: ${text}`;
    list.append(item);
  }
  box.firstElementChild.append(element('strong', '', 'These fields need another look.'), list);
  return box;
}
