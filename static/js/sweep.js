// Several learning rates or batch sizes create several models, which the form lists in advance.

import { settled } from './form_parts.js';
import { listed } from './format.js';
import { postForm, urlPrefix } from './http.js';

const WAIT_MILLISECONDS = 250;
const NAMES_SHOWN = 4;
const FIELDS = ['model_name', 'learning_rate', 'batch_size'];

/** Updates `words` and the label of `button` with the models that the form would create. */
export function startSweep(form, words, button) {
  const single = button.textContent;
  let latest = null;

  async function ask() {
    const fields = Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value]));
    const asked = JSON.stringify(fields);
    if (asked === latest) return;
    latest = asked;
    const isList = [fields.learning_rate, fields.batch_size].some((value) => value.includes(','));
    const names = isList ? await namesOf(fields) : [];
    if (asked === latest) show(names);
  }

  function show(names) {
    words.textContent = names.length > 1 ? `${names.length} models: ${listed(names, NAMES_SHOWN)}` : '';
    words.title = names.length > 1 ? names.join('\n') : '';
    button.textContent = names.length > 1 ? `Train ${names.length} models` : single;
  }

  const askSoon = settled(ask, WAIT_MILLISECONDS);
  for (const type of ['input', 'change']) form.addEventListener(type, askSoon);
  askSoon();
}

async function namesOf(fields) {
  try {
    return (await postForm(`${urlPrefix}/models/sweep`, fields)).names;
  } catch {
    return []; // Create reports the error.
  }
}
