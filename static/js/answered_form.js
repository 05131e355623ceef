// A form that the server fills in: it answers each change with the form, which replaces what differs on the page.

import { morphForm } from './morph.js';
import { fragment } from './swap.js';

const TYPING_MILLISECONDS = 200;

/**
 * Sends `form` to the URL in its data-answers after each change, except changes of the fields `ignored`. The field `own`
 * lists the names of the fields that the user has changed, the latest last, if there is one. Calls `answered()` after each answer, and
 * `problem(words)` when the server does not answer, or with "" when it does again.
 * Returns {ask, ready}: `ask()` requests an answer at once, and `ready()` resolves when the form has the latest one.
 */
export function startAnsweredForm(form, { ignored = [], answered = () => {}, problem }) {
  let asking = null; // the latest request: {controller, state, done}
  let timer = 0;
  let shown = stateOf();

  /** The form without long texts and files, on which no other field depends. */
  function stateOf() {
    const fields = new FormData(form);
    if (!form.elements.checked?.value) for (const name of ignored) fields.delete(name);
    return new URLSearchParams(fields).toString();
  }

  function ask() {
    clearTimeout(timer);
    timer = 0;
    const state = stateOf();
    if (asking?.state === state) return asking.done;
    asking?.controller.abort();
    const current = (asking = { controller: new AbortController(), state });
    current.done = answer(current).finally(() => {
      if (asking === current) asking = null;
    });
    return current.done;
  }

  async function answer({ state, controller: { signal } }) {
    try {
      const fresh = await fragment(form.getAttribute('data-answers'), { method: 'POST', body: new URLSearchParams(state), signal });
      // The form has changed since, which is being asked about, too.
      if (signal.aborted || stateOf() !== state) return;
      problem('');
      morphForm(form, fresh.getElementById(form.id));
      shown = stateOf();
      answered();
    } catch (error) {
      if (error.name !== 'AbortError') problem(error.message);
    }
  }

  function changed({ type, target }) {
    if (!target.name || ignored.includes(target.name)) return;
    const { own } = form.elements;
    if (own) own.value = [...own.value.split(',').filter((name) => name && name !== target.name), target.name].join(',');
    clearTimeout(timer);
    timer = setTimeout(() => stateOf() === shown || ask(), type === 'input' && target.matches('[type="text"], [type="number"], [type="search"]') ? TYPING_MILLISECONDS : 0);
  }

  for (const type of ['input', 'change']) form.addEventListener(type, changed);
  window.addEventListener('online', ask);

  async function ready() {
    if (timer) ask();
    while (asking) await asking.done;
  }
  return { ask, ready };
}
