// Uploads beside path fields: drop or choose an archive, files or a folder; the path of the result fills in the field.

import { confirmed } from './dialog.js';
import { chosenFiles, droppedFiles, hasEnding, startDropping } from './dropped_files.js';
import { button } from './element.js';
import { bytes, countOf, duration } from './format.js';
import { getJson, request, wordsOf } from './http.js';
import { setProgress } from './progress.js';
import { resumableUpload } from './resumable_upload.js';
import { forget, store, stored } from './storage.js';
import { tarBlob } from './tar_blob.js';

const POLL_MILLISECONDS = 300;
const SHOWN_MILLISECONDS = 250;
const SPEED_WINDOW_MILLISECONDS = 5000;

export function startUploadFields(form) {
  const boxes = [...form.querySelectorAll('[data-upload]')];
  const takers = boxes.map((box) => uploadField(box, document.getElementById(box.dataset.upload)));
  document.addEventListener('paste', ({ target, clipboardData }) => {
    // Office programs add a picture to text that is copied.
    if (takers.length === 1 && !target.closest('input, textarea')) takers[0](chosenFiles(clipboardData));
  });
  // A file dropped beside the field must not replace the page.
  for (const type of ['dragover', 'drop']) {
    document.addEventListener(type, (event) => {
      if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
    });
  }
}

/** Starts a field, and returns what takes pasted files. */
function uploadField(box, path) {
  const part = (name) => box.querySelector(`[data-upload-${name}]`);
  const [chooser, activity, words, detail, meter, problem] = ['chooser', 'activity', 'words', 'detail', 'meter', 'problem'].map(part);
  const [pause, cancel, status] = ['pause', 'cancel', 'status'].map(part);
  const key = `upload ${location.pathname} ${path.name}`;
  let upload = null;
  let run = 0; // the number of the current upload; reports of earlier ones are ignored
  let url = '';
  let isPaused = false;

  /* Choosing */

  for (const name of ['files', 'folder']) {
    const input = part(`${name}-input`);
    part(name).addEventListener('click', () => input.click());
    input.addEventListener('change', () => {
      const items = chosenFiles(input);
      input.value = '';
      begin(items);
    });
  }
  startDropping(box, box, async (dropped) => {
    if (!activity.hidden) return;
    const files = droppedFiles(dropped);
    try {
      await begin(await files);
    } catch {
      fail('The dropped files cannot be read. Check their permissions, or choose them with the buttons.');
    }
  });

  /* Sending */

  async function begin(items) {
    if (!items.length) return fail('The folder contains no files. Choose another one.');
    const { blob, name, contents } = packed(items, box.dataset.archives);
    if (!blob.size) return fail('The file is empty. Choose another one.');
    const number = (run += 1);
    isPaused = false;
    url = '';
    show('upload', name);
    const speed = speedometer();
    let shownAt = 0;
    upload = await resumableUpload(blob, {
      name,
      key: `${name} ${blob.size} ${contents}`,
      progressed(sent) {
        if (number !== run || isPaused) return;
        if (upload.url && !url) remember((url = upload.url), name);
        const rate = speed(sent);
        const now = performance.now();
        if (now - shownAt < SHOWN_MILLISECONDS && sent < blob.size) return;
        shownAt = now;
        say(`Uploading ${name}`);
        setProgress(meter, (100 * sent) / blob.size);
        const left = rate ? ` · ${bytes(rate)}/s · ${duration((blob.size - sent) / rate)} left` : '';
        detail.textContent = `${bytes(sent)} of ${bytes(blob.size)}${left}`;
      },
      interrupted: () => number === run && say('Connection lost. Trying again…'),
      done: (address) => number === run && finish(address, name, number),
      failed: (message) => number === run && fail(message),
    });
    if (number === run && !isPaused) upload.start();
  }

  /** Waits until the server has unpacked the upload. */
  async function finish(address, name, number) {
    upload = null;
    remember((url = address), name);
    show('unpack', name);
    try {
      for (;;) {
        const state = await getJson(address);
        if (number !== run) return;
        if (state.state === 'ready') return take(state);
        if (state.state === 'failed') return fail(state.error);
        detail.textContent = state.error ?? '';
        setProgress(meter, 100 * state.unpacked);
        await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
      }
    } catch (error) {
      if (number === run) fail(error.status ? wordsOf(error) : 'The server does not respond. Reload the page to continue.', !error.status);
    }
  }

  function take(state) {
    const isTable = path.dataset.path !== 'folder' && state.tables.length === 1;
    path.value = isTable ? state.tables[0] : state.folder + (path.dataset.path === 'folder' ? '' : '/');
    path.dispatchEvent(new Event('change', { bubbles: true }));
    forgetUpload();
    const hadFocus = activity.contains(document.activeElement);
    close();
    if (hadFocus) part('files').focus();
    nameUpload(state.name, [`Uploaded ${state.name}: ${countOf(state.files, 'file')}, ${bytes(state.bytes)}.`, ...state.notes].join(' '));
  }

  /** Shows `text` about the upload `name` in the place of its path on the server. */
  function nameUpload(name, text) {
    path.dataset.uploadName = name; // for messages with the path
    path.closest('.path-field').classList.add('path-uploaded');
    announce('');
    status.append(`${text} `, button('text-button', 'Enter a path instead', () => {
      showPath();
      path.value = '';
      path.dispatchEvent(new Event('change', { bubbles: true }));
      path.focus();
    }));
  }

  function showPath() {
    delete path.dataset.uploadName;
    path.closest('.path-field').classList.remove('path-uploaded');
    announce('');
  }

  /* The buttons */

  pause.addEventListener('click', async () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? 'Resume' : 'Pause';
    if (!upload) return;
    if (isPaused) {
      say('Paused');
      detail.textContent = '';
      await upload.abort();
    } else upload.start();
  });

  cancel.addEventListener('click', async () => {
    const isSure = await confirmed({
      title: 'Cancel the upload?',
      text: 'The data uploaded so far is deleted from the server.',
      yes: 'Cancel upload',
      keep: 'Keep uploading',
      action: remove,
    });
    if (!isSure) return;
    close();
    announce('Upload canceled.');
    part('files').focus();
  });

  async function remove() {
    run += 1;
    const address = upload?.url ?? url;
    await upload?.abort();
    upload = null;
    forgetUpload();
    if (!address) return;
    try {
      await request(address, { method: 'DELETE' });
    } catch (error) {
      if (![404, 410].includes(error.status)) throw error;
    }
  }

  /* Display */

  const ask = (event) => event.preventDefault();

  function show(stage, name) {
    // Leaving the page interrupts the upload, but not the unpacking.
    window[stage === 'upload' ? 'addEventListener' : 'removeEventListener']('beforeunload', ask);
    showPath();
    problem.hidden = true;
    chooser.hidden = true;
    activity.hidden = false;
    pause.hidden = stage !== 'upload';
    pause.textContent = 'Pause';
    detail.textContent = '';
    setProgress(meter, 0);
    say(stage === 'upload' ? `Uploading ${name}` : `Unpacking ${name}`);
  }

  function close() {
    window.removeEventListener('beforeunload', ask);
    upload = null;
    activity.hidden = true;
    chooser.hidden = false;
  }

  function fail(message, isKept = false) {
    run += 1;
    if (!isKept) forgetUpload();
    close();
    problem.textContent = message;
    problem.hidden = false;
  }

  function say(text) {
    if (words.textContent !== text) words.textContent = text;
  }

  const announce = (text) => (status.textContent = text);

  /* After a reload */

  const remember = (address, name) => store('localStorage', key, { address, name });
  const forgetUpload = () => forget('localStorage', (name) => name === key);

  async function restore() {
    const { address, name } = stored('localStorage', key) ?? {};
    if (!address) return;
    const number = (run += 1);
    try {
      const state = await getJson(address);
      if (number !== run) return;
      url = address;
      if (state.state === 'unpacking') finish(address, name, number);
      else if (state.state === 'ready') take(state);
      else if (state.state === 'receiving') {
        const share = Math.floor((100 * state.offset) / state.length);
        announce('');
        status.append(`The upload of ${name} was interrupted at ${share}%. Choose the same files again to resume it. `, discardButton());
      } else forgetUpload();
    } catch {
      forgetUpload();
    }
  }

  function discardButton() {
    return button('text-button', 'Discard', async () => {
      await remove().catch(() => {}); // it expires anyway
      announce('Upload discarded.');
    });
  }

  if (path.dataset.uploaded) nameUpload(path.dataset.uploadName, path.dataset.uploaded);
  restore();
  return (pasted) => activity.hidden && pasted.length && begin(pasted);
}

/** Returns what to send for `items`: one with an ending of `archives` unchanged, or a tar archive of the files. `contents` identifies them. */
function packed(items, archives) {
  if (items.length === 1 && hasEnding(items[0].file, archives)) {
    const [{ file }] = items;
    return { blob: file, name: file.name, contents: hash(`${file.lastModified}`) };
  }
  const sorted = [...items].sort((a, b) => (a.path < b.path ? -1 : 1));
  const folder = sorted[0].path.split('/')[0];
  const isOneFolder = sorted.every(({ path }) => path.startsWith(`${folder}/`));
  const name = isOneFolder ? folder : sorted.length === 1 ? sorted[0].file.name : `${sorted.length} files`;
  const contents = hash(sorted.map(({ path, file }) => `${path} ${file.size} ${file.lastModified}`).join('\n'));
  return { blob: tarBlob(sorted), name, contents };
}

/** A 53-bit hash of `text` (cyrb53), which also works without `crypto.subtle`. */
function hash(text) {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let place = 0; place < text.length; place += 1) {
    const code = text.charCodeAt(place);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
}

/** Returns a function of the bytes sent so far that returns the current speed in bytes per second, or 0. */
function speedometer() {
  const samples = [];
  return (sent) => {
    const now = performance.now();
    samples.push([now, sent]);
    while (samples.length > 2 && now - samples[0][0] > SPEED_WINDOW_MILLISECONDS) samples.shift();
    const [start, before] = samples[0];
    return now - start < 500 ? 0 : Math.max(0, (1000 * (sent - before)) / (now - start));
  };
}
