// Has the server take one real step with the form's settings, and shows what it says of the whole training.

import { startAsking } from './ask_network.js';
import { clearFieldErrors, mistakes, showFieldErrors } from './field_errors.js';
import { getJson, postForm, urlPrefix } from './http.js';
import { showPreflight } from './preflight_result.js';

// Only a click asks for this: a network can do then what it cannot in a training.
const STEP_BY_STEP = 'eager';

// What a step does not depend on.
const ONLY_NAMES = ['model_name', 'group_name', 'preflight', 'csrf_token', STEP_BY_STEP];

/**
 * `failed(fault)` is told about a mistake in the network; `focus` has ways to focus odd fields, by name.
 * Answers a function that answers {answer} or {error} for the form as it is then: without a click, after what is under way,
 * and without another step if the latest one was just that.
 */
export function startPreflight(form, button, region, { failed, focus }) {
  // The step under way, or the latest one if nothing speaks against the training: {settings, answer}.
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
      const errors = error.body?.errors;
      if (!errors) return false;
      place.replaceChildren(mistakes(form, errors));
      showFieldErrors(form, errors, focus);
      return true;
    },
  });

  const isCurrent = () => latest?.settings === settingsOf(form);

  async function check() {
    const outcome = await (isCurrent() ? outcomeOf(latest.answer) : run());
    // What was changed meanwhile is not what was checked.
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
