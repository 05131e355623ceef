// Packs files into a tar archive without reading them: the archive is a Blob of their headers and the files themselves.
// The browser reads each part only when it is sent, and the same files always result in the same bytes, so that an
// upload of the archive can be resumed.

const BLOCK_BYTES = 512;
const MAX_OCTAL_SIZE = 8 ** 11;
const encoder = new TextEncoder();

/** `items`: [{path, file}]. Returns a Blob. */
export function tarBlob(items) {
  const parts = [];
  let rest = []; // bytes between two files
  for (const { path, file } of items) {
    parts.push(new Blob([...rest, ...headers(path, file)]), file);
    rest = [new Uint8Array(padding(file.size))];
  }
  parts.push(new Blob([...rest, new Uint8Array(2 * BLOCK_BYTES)]));
  return new Blob(parts, { type: 'application/x-tar' });
}

const padding = (size) => (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;

/** The blocks before a file: if necessary, a header with its long or non-ASCII path. */
function headers(path, file) {
  const seconds = Math.floor(file.lastModified / 1000);
  const isPlain = /^[\x20-\x7e]{1,100}$/.test(path) && file.size < MAX_OCTAL_SIZE;
  if (isPlain) return [header(path, file.size, seconds, '0')];
  const records = encoder.encode(record('path', path) + record('size', String(file.size)));
  return [
    header('PaxHeader', records.length, seconds, 'x'),
    records,
    new Uint8Array(padding(records.length)),
    header('file', file.size < MAX_OCTAL_SIZE ? file.size : 0, seconds, '0'),
  ];
}

/** A record of an extended header. It starts with its own length. */
function record(key, value) {
  const rest = ` ${key}=${value}\n`;
  const length = encoder.encode(rest).length;
  let total = length + String(length).length;
  total = length + String(total).length;
  return `${total}${rest}`;
}

function header(name, size, seconds, type) {
  const block = new Uint8Array(BLOCK_BYTES);
  const write = (text, start) => block.set(encoder.encode(text), start);
  const octal = (value, digits) => `${value.toString(8).padStart(digits, '0')}\0`;
  write(name, 0);
  write(octal(0o644, 7), 100);
  write(octal(0, 7), 108);
  write(octal(0, 7), 116);
  write(octal(size, 11), 124);
  write(octal(Math.max(0, seconds), 11), 136);
  write(' '.repeat(8), 148);
  write(type, 156);
  write('ustar\x0000', 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return block;
}
