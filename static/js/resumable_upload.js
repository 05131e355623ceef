// Uploads a Blob by the tus protocol: in chunks with checksums, resumed after interruptions and reloads.

import { Upload } from '../vendor/tus.js';
import { urlPrefix } from './http.js';

const CHUNK_BYTES = 8 * 1024 * 1024;
const RETRY_MILLISECONDS = [500, 1000, 3000, 5000, 10000, ...Array(60).fill(20000)];
// Temporary: too slow, another request is still writing, damaged on its way, too many requests.
const RETRIED = [408, 409, 423, 429, 460];

/**
 * Returns a tus Upload, to be started. `key` identifies the contents of `blob`: an upload with the same key is resumed.
 * Calls `progressed(sent)`, `interrupted()` before another try, and `done(url)` or `failed(message)`.
 */
export async function resumableUpload(blob, { name, key, progressed, interrupted, done, failed }) {
  const upload = new Upload(blob, {
    endpoint: `${location.origin}${urlPrefix}/uploads`,
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_MILLISECONDS,
    metadata: { filename: name },
    fingerprint: async () => `digits-upload ${urlPrefix} ${key}`,
    removeFingerprintOnSuccess: true,
    onBeforeRequest: (request) => prepare(request, blob),
    onShouldRetry(error) {
      const status = error.originalResponse?.getStatus() ?? 0;
      const isTemporary = status === 0 || RETRIED.includes(status) || (status >= 500 && status !== 507);
      if (isTemporary) interrupted();
      return isTemporary;
    },
    onProgress: progressed,
    onSuccess: () => done(upload.url),
    onError: (error) => failed(messageOf(error)),
  });
  const [previous] = (await upload.findPreviousUploads()).sort((a, b) => b.creationTime.localeCompare(a.creationTime));
  if (previous) upload.resumeFromPreviousUpload(previous);
  return upload;
}

async function prepare(request, blob) {
  request.setHeader('Accept', 'application/json');
  request.setHeader('X-CSRFToken', document.querySelector('meta[name="csrf-token"]').content);
  // Browsers compute checksums only for pages from HTTPS or from this computer.
  if (request.getMethod() !== 'PATCH' || !crypto.subtle) return;
  const start = Number(request.getHeader('Upload-Offset'));
  const chunk = await blob.slice(start, start + CHUNK_BYTES).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', chunk));
  request.setHeader('Upload-Checksum', `sha256 ${btoa(String.fromCharCode(...digest))}`);
}

function messageOf(error) {
  const response = error.originalResponse;
  try {
    const { message, hint } = JSON.parse(response.getBody()).error;
    return [message, hint].filter(Boolean).join(' ');
  } catch {
    if (response) return `The server answered ${response.getStatus()}. Try again.`;
    return 'The files cannot be read, or the server does not respond. Check that they still exist, and try again.';
  }
}
