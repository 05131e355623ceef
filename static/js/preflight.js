// Runs the preflight with the form's settings, and shows its result.

import { startAsking } from './ask_network.js';
import { clearFieldErrors, mistakes, showFieldErrors } from './field_errors.js';
import { getJson, postForm, urlPrefix } from './http.js';
import { showPreflight } from './preflight_result.js';

// Only on click: eagerly, a network can do things that it cannot do in training.
const STEP_BY_STEP = 'eager';

// Fields that do not affect the preflight.
const ONLY_NAMES = ['model_name', 'group_name', 'preflight', 'csrf_token', STEP_BY_STEP];

/**
  * `failed(error)` receives an error in the network; `focus` contains functions that focus special fields, by name.
  * Returns a function that resolves to {answer} or {error} for the current form: without a click, after any pending check,
  * and without another check if the latest one had the same settings.
 */
export function startPreflight(form, button, region, { failed, focus }) {
  // The pending check, or the latest one if it does not advise against training: {settings, answer}.
  let latest = null;

  const run = startAsking(button, region, {
    doing: 'Running one step…',
    ask(isClick, progress) {
      clearFieldErrors(form);
      const fields = new FormData(form);
      const watch = [...crypto.getRandomValues(new Uint32Array(4))].join('');
      fields.set('watch', watch);
      progress.stage = async () => {
        const { doing } = await getJson(`${urlPrefix}/models/preflight/progress?watch=${watch}`);
        return doing && `${doing}…`;
      };
      if (!isClick) fields.delete(STEP_BY_STEP);
      const answer = postForm(`${urlPrefix}/models/preflight`, fields);
      latest = fields.has(STEP_BY_STEP) ? null : { settings: settingsOf(form), answer };
      return answer;
    },
    show(place, answer) {
      if (answer.result.verdict_level === 'bad') latest = null;
      showPreflight(place, answer);
    },
    failed,
    refused(place, error) {
      latest = null;
      const errors = error.errors;
      if (!errors) return false;
      place.replaceChildren(mistakes(form, errors));
      showFieldErrors(form, errors, focus);
      return true;
    },
  });

  const isCurrent = () => latest?.settings === settingsOf(form);

  async function check() {
    const outcome = await (isCurrent() ? outcomeOf(latest.answer) : run());
    // The form has changed since the check started.
    return latest && !isCurrent() ? check() : outcome;
  }
  return check;
}

const outcomeOf = (promise) =>
  promise.then(
    (answer) => ({ answer }),
    (error) => ({ error }),
  );

function settingsOf(form) {
  const fields = new FormData(form);
  for (const name of ONLY_NAMES) fields.delete(name);
  return new URLSearchParams(fields).toString();
}
