// Uploads a Blob over the tus protocol: in chunks, resumed after interruptions and reloads.

import { Upload } from '../vendor/tus.js';
import { urlPrefix, wordsOf } from './http.js';

const CHUNK_BYTES = 8 * 1024 * 1024;
const RETRY_MILLISECONDS = [500, 1000, 3000, 5000, 10000, ...Array(60).fill(20000)];
// Errors of a file that was changed or removed in the meantime.
const UNREADABLE = ['NotReadableError', 'NotFoundError'];
// Temporary: too slow, another request is still writing, too many requests.
const RETRIED = [408, 409, 423, 429];

/**
 * Returns a tus Upload, to be started. `key` identifies the contents of `blob`: an upload with the same key is resumed.
 * Calls `progressed(sent)`, `interrupted()` before a retry, and `done(url)` or `failed(message)`.
 */
export async function resumableUpload(blob, { name, key, progressed, interrupted, done, failed }) {
  // Read before they are sent, so that a file that has changed is not mistaken for a lost connection.
  const slice = async (start, end) => ({
    value: new Blob([await blob.slice(start, end).arrayBuffer()]),
    done: end >= blob.size,
  });
  const upload = new Upload(blob, {
    endpoint: `${location.origin}${urlPrefix}/uploads`,
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_MILLISECONDS,
    metadata: { filename: name },
    fileReader: { openFile: async () => ({ size: blob.size, slice, close() {} }) },
    fingerprint: async () => `digits-upload ${urlPrefix} ${key}`,
    removeFingerprintOnSuccess: true,
    onBeforeRequest(request) {
      request.setHeader('Accept', 'application/json');
      request.setHeader('X-CSRFToken', document.querySelector('meta[name="csrf-token"]').content);
    },
    onShouldRetry(error) {
      if (UNREADABLE.includes(error.causingError?.name)) return false;
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

function messageOf(error) {
  const response = error.originalResponse;
  try {
    return wordsOf(JSON.parse(response.getBody()).error);
  } catch {
    if (response) return `The server answered ${response.getStatus()}. Try again.`;
    return 'The files cannot be read, or the server does not respond. Check that they still exist, and try again.';
  }
}
