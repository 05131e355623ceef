// Runs the preflight with the form's settings, and shows its result.

import { startAsking } from './ask_network.js';
import { getJson, postForm, uniqueName, urlPrefix } from './http.js';
import { showPreflight } from './preflight_result.js';

/**
 * On click, `button` shows the result in `region`. `failed(error)` receives an error in the network; `refused()`
 * shows the errors of the form; `passed(answer)` receives every result.
 */
export function startPreflight(form, button, region, { failed, refused, passed }) {
  startAsking(button, region, {
    doing: 'Running one step…',
    ask(progress) {
      const fields = new FormData(form);
      const watch = uniqueName();
      fields.set('watch', watch);
      progress.stage = async () => {
        const { doing } = await getJson(`${urlPrefix}/models/preflight/progress?watch=${watch}`);
        return doing && `${doing}…`;
      };
      return postForm(`${urlPrefix}/models/preflight`, fields);
    },
    show(place, answer) {
      passed(answer);
      showPreflight(place, answer);
    },
    failed,
    async refused(place, { errors }) {
      if (!errors) return false;
      await refused();
      const list = document.getElementById('form-errors')?.cloneNode(true);
      list?.removeAttribute('id');
      place.replaceChildren(list ?? '');
      return true;
    },
  });
}
