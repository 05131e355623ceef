// Requests to this server, with the CSRF token, the URL prefix, and the server's error messages.

const element = (name, page = document) => page.querySelector(`meta[name="${name}"]`);
const meta = (name) => element(name)?.content ?? '';

export const urlPrefix = meta('url-prefix');

/** The position in the live messages up to which this page contains all changes. */
export const liveCursor = () => meta('live-cursor');

/** Call it after everything in this page is as in `fresh`, the same page requested again. */
export function advanceLiveCursor(fresh) {
  element('live-cursor').content = element('live-cursor', fresh).content;
}

/**
 * A response that is not 2xx. `message` and `hint` are for users, and `box` is the markup that shows them; `line` is that
 * of an error in the user's network; `errors` are those of the fields of a form; `body` is the JSON response, if it is one.
 */
export class RequestError extends Error {
  constructor(message, { status = 0, hint = '', box = '', line = null, errors = null, body = null } = {}) {
    super(message);
    Object.assign(this, { status, hint, box, line, errors, body });
  }
}

/** A name that no other request or page has. */
export const uniqueName = () => [...crypto.getRandomValues(new Uint32Array(4))].join('');

/** The message and the hint of an error. */
export const wordsOf = ({ message, hint }) => [message, hint].filter(Boolean).join(' ');

/** Like fetch, but throws RequestError for responses that are not 2xx and if the server is unreachable. */
export async function request(url, { method = 'GET', headers = {}, ...rest } = {}) {
  const token = method === 'GET' ? {} : { 'X-CSRFToken': meta('csrf-token') };
  let response;
  try {
    response = await fetch(url, {
      method,
      credentials: 'same-origin',
      headers: { Accept: 'application/json', 'X-Error-Box': '1', ...token, ...headers },
      ...rest,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new RequestError('The server does not respond. Check that it is still running.');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** The JSON response to a GET of `url`. */
export async function getJson(url, options = {}) {
  return (await request(url, options)).json();
}

/** Posts fields (FormData or an object); resolves to the JSON response. */
export async function postForm(url, fields, options = {}) {
  const body = fields instanceof FormData ? fields : formData(fields);
  return (await request(url, { method: 'POST', body, ...options })).json();
}

/** Converts the fields of an object to form data. */
export function formData(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return data;
}

/** Sends the ids of several jobs, and other fields, to `path`. */
export function requestForJobs(path, method, ids, fields = {}) {
  const body = formData(fields);
  for (const id of ids) body.append('job_ids[]', id);
  return request(urlPrefix + path, { method, body });
}

async function errorOf(response) {
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not JSON: use the status.
  }
  const error = body?.error;
  const message =
    (typeof error === 'string' ? error : error?.message) ??
    (body?.errors ? Object.values(body.errors).flat().join(' ') : null) ??
    (body === null && text && text.length < 300 && !text.includes('<') ? text : `The server answered ${response.status} ${response.statusText}.`);
  const { hint, box, line } = Object(error);
  return new RequestError(message, { status: response.status, hint, box, line, errors: body?.errors, body });
}
