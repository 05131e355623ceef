// Submits a form that creates a job without leaving its page, so that its contents survive errors and lost connections.

import { request, urlPrefix } from './http.js';

/**
 * Returns {send, busy, free}. `send()` posts the form once and opens the page of the new job; errors of fields are passed to
 * `refused(errors)`, by default to show the form again with them, and others are shown beside the button. `busy(words)`
 * and `free(words)` disable and enable it.
 */
export function startCreatingJob(form, { memory, refused = () => form.submit(), doing = 'Creating…' }) {
  const button = form.querySelector('[type="submit"]');
  const status = document.getElementById('create-status');
  let isSent = false;

  function busy(words = '') {
    button.disabled = true;
    button.setAttribute('aria-busy', 'true');
    say(words);
  }

  function free(words = '', tone = '') {
    button.disabled = false;
    button.removeAttribute('aria-busy');
    say(words || (button.dataset.reason ?? ''), tone);
  }

  function say(words, tone = '') {
    status.textContent = words;
    status.classList.toggle('error-text', tone === 'danger');
  }

  async function send() {
    if (isSent) return;
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
  return { send, busy, free };
}
