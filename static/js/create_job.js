// Submits a form that creates a job without leaving its page, so that its contents survive errors and lost connections.

import { showFormErrors } from './field_errors.js';
import { request, urlPrefix } from './http.js';

/**
 * Returns {send, busy, free, block}. `send()` posts the form once and opens the page of the new job; errors are shown
 * with `refused(errors)`, by default at the fields, or beside the button. `busy(words)` and `free(words)` disable and enable the button. `block(reason)`
 * stops it, with the reason beside it, until it is called with an empty one.
 */
export function startCreatingJob(form, { memory, refused = (errors) => showFormErrors(form, errors), doing = 'Creating…' }) {
  const button = form.querySelector('[type="submit"]');
  const status = document.getElementById('create-status');
  let isSent = false;
  let blocked = '';

  function busy(words = '') {
    button.disabled = true;
    button.setAttribute('aria-busy', 'true');
    say(words);
  }

  function free(words = '', tone = '') {
    button.disabled = false;
    button.removeAttribute('aria-busy');
    say(words || blocked, tone);
  }

  function say(words, tone = '') {
    status.textContent = words;
    status.classList.toggle('error-text', tone === 'danger');
  }

  function block(reason) {
    if (reason === blocked) return;
    blocked = reason;
    if (reason) button.setAttribute('aria-disabled', 'true'); // it stays in the tab order, described by the reason
    else button.removeAttribute('aria-disabled');
    say(reason);
  }

  async function send() {
    if (isSent || blocked) return;
    isSent = true;
    busy(doing);
    try {
      const all = new FormData(form);
      const body = form.querySelector('input[type="file"]') ? all : new URLSearchParams(all);
      const created = await (await request(`${form.action}.json`, { method: 'POST', body })).json();
      memory.sent();
      location.assign(created.jobs ? `${urlPrefix}/` : `${urlPrefix}/jobs/${created.id}`);
    } catch (error) {
      isSent = false;
      const { errors } = error;
      free(errors ? '' : `${error.message} ${error.hint || 'Your input has been kept.'}`, 'danger');
      if (errors) refused(errors);
    }
  }

  // The back button may restore the page from the browser's cache.
  window.addEventListener('pageshow', () => {
    isSent = false;
    free();
  });
  return { send, busy, free, block };
}
