// Replaces a part of the page by what the server answers: the latest request wins, and the part is busy until then.

import { markup } from './element.js';
import { request } from './http.js';
import { errorBox } from './error_box.js';

/**
 * Returns a function `swap(ask, show)` for `area`. It passes the result of `ask(signal)` to `show`, and an error to
 * `fail`, by default to show it in the area. The next call aborts the request of the one before, which shows nothing.
 */
export function swapping(area, fail = (error) => area.replaceChildren(errorBox(error))) {
  let pending = null;
  return async (ask, show) => {
    pending?.abort();
    const current = (pending = new AbortController());
    area.setAttribute('aria-busy', 'true');
    try {
      const answer = await ask(current.signal);
      if (current === pending) show(answer);
    } catch (error) {
      if (current === pending) fail(error);
    } finally {
      if (current === pending) area.removeAttribute('aria-busy');
    }
  };
}

/** Requests markup, a page or a part of one, as a document fragment. */
export async function fragment(url, { headers = { Accept: 'text/html' }, ...options } = {}) {
  return markup(await (await request(url, { headers, ...options })).text());
}
