// Runs the preflight with the form's settings, and shows its result.

import { startAsking } from './ask_network.js';
import { getJson, postForm, uniqueName, urlPrefix } from './http.js';
import { showPreflight } from './preflight_result.js';

// Only on click: eagerly, a network can do things that it cannot do in training.
const EAGER = 'eager';

// Fields that do not affect the preflight.
const ONLY_NAMES = ['model_name', 'group_name', 'preflight', 'csrf_token', 'own', 'checked', EAGER];

/**
  * On click, `button` shows the result in `region`. `failed(error)` receives an error in the network; `refused()`
  * shows the errors of the form; `passed(answer)` receives every result.
  * Returns a function that checks the current form before a training and resolves to {answer} or {error}: it reuses a
  * pending or the latest check with the same settings, and reports its progress in `trainRegion`.
 */
export function startPreflight(form, button, region, trainRegion, { failed, refused, passed }) {
  // The pending check, or the latest one that succeeded: {settings, answer}.
  let latest = null;

  const asking = {
    doing: 'Running one step…',
    ask(isClick, progress) {
      const fields = new FormData(form);
      const watch = uniqueName();
      fields.set('watch', watch);
      progress.stage = async () => {
        const { doing } = await getJson(`${urlPrefix}/models/preflight/progress?watch=${watch}`);
        return doing && `${doing}…`;
      };
      if (!isClick) fields.delete(EAGER);
      const answer = postForm(`${urlPrefix}/models/preflight`, fields);
      latest = fields.has(EAGER) ? null : { settings: settingsOf(form), answer };
      return answer;
    },
    show(place, answer) {
      passed(answer);
      showPreflight(place, answer);
    },
    failed,
    async refused(place, { errors }) {
      latest = null;
      if (!errors) return false;
      await refused();
      const list = document.getElementById('form-errors')?.cloneNode(true);
      list?.removeAttribute('id');
      place.replaceChildren(list ?? '');
      return true;
    },
  };
  startAsking(button, region, asking);
  const run = startAsking(null, trainRegion, asking);

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
