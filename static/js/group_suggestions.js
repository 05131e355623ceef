// A field for a group: suggests existing ones in its list.

import { settled } from './settled.js';
import { getJson, urlPrefix } from './http.js';

const TYPING_MILLISECONDS = 200;

/** Suggests groups that contain the typed words. The page itself lists only the first groups. */
export function suggestGroups(input) {
  const find = async () => {
    const words = input.value;
    const { suggestions } = await getJson(`${urlPrefix}/autocomplete/group?query=${encodeURIComponent(words)}`);
    if (words === input.value) input.list.replaceChildren(...suggestions.map((group) => new Option('', group)));
  };
  input.addEventListener('input', settled(() => find().catch(() => {}), TYPING_MILLISECONDS)); // Suggestions are optional.
}
