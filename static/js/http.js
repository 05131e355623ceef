// Requests to our own server: the token against forgery, the prefix, and errors with the server's own words.

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? '';

export const urlPrefix = meta('url-prefix');

/** An answer that is not 2xx. `message` is for people; `body` is the JSON that came, if any. */
export class RequestError extends Error {
  constructor(message, { status = 0, hint = '', body = null } = {}) {
    super(message);
    this.status = status;
    this.hint = hint;
    this.body = body;
  }
}

/** Like fetch, but raises RequestError for what is not 2xx and when the server cannot be reached. */
export async function request(url, { method = 'GET', headers = {}, ...rest } = {}) {
  const token = method === 'GET' ? {} : { 'X-CSRFToken': meta('csrf-token') };
  let response;
  try {
    response = await fetch(url, {
      method,
      credentials: 'same-origin',
      headers: { Accept: 'application/json', ...token, ...headers },
      ...rest,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new RequestError('The server does not respond. Check that it is still running.');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** The JSON that a GET of `url` answers. */
export async function getJson(url, options = {}) {
  return (await request(url, options)).json();
}

/** Posts fields (FormData or an object); the JSON answer. */
export async function postForm(url, fields, options = {}) {
  const body = fields instanceof FormData ? fields : formData(fields);
  return (await request(url, { method: 'POST', body, ...options })).json();
}

/** The fields of an object as form data. */
export function formData(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return data;
}

async function errorOf(response) {
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not JSON: the status has to do.
  }
  const error = body?.error;
  const message =
    (typeof error === 'string' ? error : error?.message) ??
    (body?.errors ? Object.values(body.errors).flat().join(' ') : null) ??
    (body === null && text && text.length < 300 && !text.includes('<') ? text : `The server answered ${response.status} ${response.statusText}.`);
  return new RequestError(message, { status: response.status, hint: error?.hint ?? '', body });
}
