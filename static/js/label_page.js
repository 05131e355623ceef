// Labeling images: tools, classes, the list of objects, the order of images, and saving.

import { toast } from './dialog.js';
import { button, element } from './element.js';
import { ago } from './format.js';
import { RequestError, formData, getJson, request, uniqueName, wordsOf } from './http.js';
import { boundTo, keysOf, listOf, nameOf, typesText } from './label_keys.js';
import { KINDS } from './label_values.js';
import { STATES, changeOf, wordsOfEntry } from './label_words.js';
import { join } from './live.js';
import { IGNORED } from './mask.js';
import { Outbox } from './outbox.js';
import { bounds } from './shapes.js';

// Without input for this long, nobody is labeling.
const IDLE_SECONDS = 30;
// The list of a crowd would take longer to draw than its objects.
const LISTED = 200;

const find = (id) => document.getElementById(id);
const box = find('label');
const { url, job, field, classes, count, user, limits, n: first } = JSON.parse(box.dataset.labels);
const shownClasses = () => classes.filter((item) => !item.is_deleted);
// Identifies this tab to the server, which gives its images to nobody else.
const client = uniqueName().slice(0, 60);
const image = find('label-image');
let current = null;
let active = { seconds: 0, last: performance.now() };
// What the server answered about the next images, requested in advance, and the revisions that it confirmed.
const ahead = new Map();
const confirmed = new Map();
let following = null;
// The latest changes of images whose masks are still encoded, one after another.
const encoding = new Map();
let encoded = Promise.resolve();

const canvas = new KINDS[field](find('label-frame'), image, { classes, changed: () => save(), shown });
canvas.useClasses();

const outbox = await Outbox.open(job, {
  send: post,
  answered: (n, { rev }) => {
    confirmed.set(n, rev);
    if (current?.n === n) current.rev = rev;
  },
  refused,
  shown: (waiting, unsaved, error) => {
    find('label-saved').textContent = error ? `Not saved yet: ${wordsOf(error)}` : waiting || encoding.size ? 'Saving…' : unsaved.length ? '' : 'All changes are saved.';
    listUnsaved(unsaved);
  },
});

// Saving

async function post({ n, job: ofJob, problem, mask, ...change }) {
  const answer = new Blob([JSON.stringify(change)], { type: 'application/json' });
  const [most, size] = mask ? [limits[0], mask.size + answer.size] : [limits[1], answer.size];
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
  // The server would close the connection without an answer.
  if (size > 0.99 * most) throw new RequestError(`${mask ? 'The mask' : 'The answer'} has ${megabytes(size)}; at most ${megabytes(0.99 * most)} can be saved.`, { status: 413, hint: mask ? 'Paint larger areas of the same class.' : 'Draw fewer objects, or fewer corners.' });
  return (await request(`${url}/images/${n}.json`, { method: 'POST', body: mask ? formData({ answer: await answer.text(), mask }) : answer })).json();
}

/** Saves what is on the page. Without objects, an image that is labeled is known to be empty. */
function save(state = canvas.missing ? 'unlabeled' : 'labeled', { mask, ...value } = canvas.value) {
  const { n, rev } = current;
  const put = (change) => outbox.put(n, Math.max(rev, confirmed.get(n) ?? 0), change);
  const entry = { state, seconds: Math.round(10 * active.seconds) / 10, proposed: current.isProposed, ...value };
  Object.assign(current, { state, by: user, at: Date.now() / 1000 });
  shown();
  if (!mask && !encoding.has(n)) {
    put(entry);
    return;
  }
  encoding.set(n, entry);
  find('label-saved').textContent = 'Saving…';
  encoded = encoded.then(async () => {
    if (encoding.get(n) !== entry) return; // a later one contains it
    const file = mask && (await mask.toPng());
    if (encoding.get(n) === entry) encoding.delete(n);
    put(file ? { ...entry, mask: file } : entry);
  }).catch((error) => toast(`Image ${n + 1} is not saved: ${wordsOf(error)}`, 'danger', 12));
}

window.addEventListener('beforeunload', (event) => encoding.size && event.preventDefault());

/** Lists the changes that the server refuses, with the reasons. */
function listUnsaved(unsaved) {
  const words = `${unsaved.length.toLocaleString('en')} not saved`;
  Object.assign(find('label-unsaved'), { hidden: !unsaved.length, textContent: words });
  const row = ({ n, problem }) =>
    element('li', 'stack stack-tight', element('p', 'small', element('b', '', `Image ${n + 1}: `), problem),
      element('div', 'row', button('button button-small', 'Open', () => (find('label-problems').close(), turn(() => open(n)))), button('button button-small button-danger', 'Discard', () => discard(n))));
  find('label-problems').querySelector('ul').replaceChildren(...(unsaved.length ? unsaved.map(row) : [element('li', 'small', 'None.')]));
}

/** Shows image `n` as the server has it, instead of a change that it refuses. */
function discard(n) {
  outbox.drop(n);
  if (current?.n === n) turn(() => open(n));
}

/** Shows a change that the server refused, because it is wrong or somebody else labeled the image. */
function refused({ n }, error) {
  if (error.status !== 409) {
    toast(`Image ${n + 1} is not saved: ${wordsOf(error)}`, 'danger', 12);
    return loadClasses(); // one of them may have been deleted
  }
  const dialog = find('label-conflict');
  const { entry } = error.body;
  const mine = outbox.find(n);
  // The classes in a new mask are known to the server only.
  const change = changeOf({ ...mine, labels: mine.mask ? entry.labels : mine.labels }, entry, classes);
  const words = [`${entry.by || 'Somebody else'} saved image ${n + 1} while you labeled it: ${wordsOfEntry(entry, classes)}`, `Your labels: ${wordsOfEntry(mine, classes)}`, change && `The difference: ${change}.`];
  dialog.querySelector('[data-words]').textContent = words.filter(Boolean).join(' ');
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (!dialog.returnValue) {
        dialog.showModal(); // the Escape key decides nothing
        return;
      }
      if (dialog.returnValue === 'theirs') discard(n);
      else outbox.resend(n, entry.rev);
      resolve();
    };
  });
}

// History

let older = null;

/** Shows the saved entries of the image, the newest first. */
async function openHistory() {
  await encoded;
  await outbox.flush();
  turn(async () => {
    find('label-history').querySelector('ul').replaceChildren();
    await listEntries();
    find('label-history').showModal();
  });
}

/** Lists entries `before` one: each stroke of a mask is one, so there may be many. */
async function listEntries(before = '') {
  const { entries, models, before: more } = await getJson(`${current.url}/history.json?before=${before}`);
  const row = (entry, at) => {
    const model = models[entry.source?.split('/')[0]];
    const change = at + 1 < entries.length ? changeOf(entry, entries[at + 1], classes) : '';
    const words = [wordsOfEntry(entry, classes), change && element('span', 'small', ` ${change}`)];
    const restore = button('button button-small', 'Restore', () => (find('label-history').close(), turn(() => canvas.replace(entry, current))));
    restore.setAttribute('aria-label', `Restore: ${words[0]} ${change}`);
    return element('li', 'row row-apart row-nowrap', element('div', '', element('b', '', words[0]), words[1], element('p', 'small muted', timeOf(entry.at), entry.by && ` · ${entry.by}`, model ? ` · Proposed by: ${model}` : '')), entry.rev < current.rev && ['labeled', 'reviewed'].includes(entry.state) ? restore : '');
  };
  // The change of an entry needs the one before it, so the last of a page is shown with the next page.
  const rows = entries.map(row).slice(0, more ? -1 : undefined);
  find('label-history').querySelector('ul').append(...(entries.length ? rows : [element('li', 'small', 'None.')]));
  older = more && entries.at(-1).rev + 1;
  find('label-older').hidden = !older;
}

const timeOf = (at) => element('time', { datetime: new Date(1000 * at).toISOString(), title: new Date(1000 * at).toLocaleString('en') }, ago(at));

// Images

const ask = (n) => getJson(`${url}/images/${n}.json`);

/** What the server says about an image, which may have been requested in advance. */
const about = (n) => {
  if (!ahead.has(n)) ahead.set(n, ask(n).catch((error) => (ahead.delete(n), Promise.reject(error))));
  return ahead.get(n);
};

/** Does what leads to another image. Keys and pointers do nothing meanwhile: they would change the image before. */
async function turn(act) {
  if (canvas.isLocked) return;
  canvas.isLocked = true;
  try {
    await act();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    toast(wordsOf(error), 'danger');
  } finally {
    canvas.isLocked = false;
  }
}

/** Returns whether the picture is on the page: nobody labels what nobody sees. */
function isVisible() {
  if (!current.isVisible) toast('This image cannot be shown. Skip it.', 'danger');
  return current.isVisible;
}

/** Shows image `n`. What another person changed since it was requested in advance is found when it is saved. */
async function open(n) {
  canvas.cancel();
  if (encoding.has(n)) await encoded;
  outbox.flush();
  let found = await about(n);
  // The request may have overtaken the one that saved.
  if (found.rev < confirmed.get(n)) found = await ask(n);
  ahead.clear();
  const waiting = outbox.find(n);
  const isOpen = found.state === 'none' || found.state === 'unlabeled';
  image.src = `${url}/images/${n}/picture`;
  image.alt = found.path;
  const isShown = await image.decode().then(() => true, () => false);
  if (!isShown) toast(`Image ${n + 1} cannot be shown.`, 'danger');
  // Images of the validation and the test split come without proposals.
  const proposal = isOpen ? found.predicted : null;
  current = { ...found, url: `${url}/images/${n}`, isVisible: isShown, isProposed: Boolean(proposal), state: waiting?.state ?? found.state };
  active = { seconds: 0, last: performance.now() };
  await canvas.load(waiting ?? proposal ?? found, current);
  history.replaceState(null, '', `${url}/images/${n}`);
  find('label-file').textContent = found.path;
  find('label-place').textContent = `${(n + 1).toLocaleString('en')} of ${count.toLocaleString('en')}`;
  shown();
  following = nextAfter(n);
  following.then(({ images: [next] }) => next && preload(next.n)).catch(() => {});
  if (n + 1 < count) preload(n + 1);
}

function preload(n) {
  about(n).catch(() => {}); // open says why
  new Image().src = `${url}/images/${n}/picture`;
}

/** Asks for the next image. The request may overtake those that save: their images are not open. */
function nextAfter(n) {
  const asked = getJson(`${url}/next.json?client=${client}&without=${[n, ...encoding.keys(), ...outbox.images]}`);
  asked.catch(() => {}); // openNext says why
  return asked;
}

/** Opens the next image that nobody has labeled. */
async function openNext() {
  try {
    const { images: [next] } = await following;
    if (next) await open(next.n);
    else toast('All images are labeled.');
  } catch (error) {
    following = nextAfter(current.n);
    toast(wordsOf(error), 'danger');
  }
}

async function copyPrevious() {
  for (let n = current.n - 1; n >= Math.max(0, current.n - 20); n--) {
    const entry = await ask(n);
    if (entry.state !== 'labeled' && entry.state !== 'reviewed') continue;
    if (entry.objects) canvas.paste(entry.objects);
    else await canvas.replace(entry, { ...current, url: `${url}/images/${n}` });
    return;
  }
  toast('None of the 20 images before this one is labeled.', 'info');
}

const actions = {
  next: () => turn(async () => current.n + 1 < count && (await open(current.n + 1))),
  previous: () => turn(async () => current.n && (await open(current.n - 1))),
  accept() {
    if (canvas.isLocked || canvas.finish?.() || !isVisible()) return;
    if (canvas.missing) toast(`Choose ${canvas.missing} first, or skip the image.`, 'info');
    else {
      save();
      turn(openNext);
    }
  },
  skip() {
    if (canvas.isLocked) return;
    const isSkipped = current.state === 'skipped';
    save(isSkipped ? 'unlabeled' : 'skipped', {});
    if (!isSkipped) turn(openNext);
  },
  review() {
    if (canvas.isLocked) return;
    if (current.state !== 'labeled' || (user && current.by === user)) toast('Only images that somebody else has labeled can be reviewed.', 'info');
    else if (isVisible()) {
      save('reviewed');
      turn(openNext);
    }
  },
  copy: () => turn(copyPrevious),
  undo: () => canvas.isLocked || canvas.changes.undo(),
  redo: () => canvas.isLocked || canvas.changes.redo(),
  erase: () => canvas.isLocked || canvas.erase(),
  eraser: () => canvas.toggleEraser(),
  smaller: () => canvas.resize(-1),
  larger: () => canvas.resize(1),
  fit: () => canvas.zoom.reset(),
  history: openHistory,
  older: () => turn(() => listEntries(older)),
  help: () => find('label-help').showModal(),
  search: find('label-search')?.hidden === false && (() => find('label-search').focus()),
  unsaved: () => find('label-problems').showModal(),
  retry: () => outbox.retry(),
  hide: () => {
    canvas.isHidden = !canvas.isHidden;
    canvas.draw();
  },
};

/** Applies a class. Before the next image is on the page, it is that of what is drawn there. */
function choose(id) {
  if (canvas.isLocked) canvas.chooseNext?.(id);
  else if (isVisible()) {
    canvas.choose(id);
    if (canvas.goesOn) turn(openNext);
  }
}

// The side

// The buttons of the classes by id, and those of the classes that the image or the selected object has.
const classButtons = new Map();
const pressed = [];

function shown() {
  if (!current) return;
  for (const tool of find('label-tools').querySelectorAll('[data-tool]')) tool.setAttribute('aria-pressed', String(tool.dataset.tool === canvas.tool));
  for (const item of pressed.splice(0)) item.setAttribute('aria-pressed', 'false');
  pressed.push(...canvas.chosen.map((id) => classButtons.get(id)).filter(Boolean));
  for (const item of pressed) item.setAttribute('aria-pressed', 'true');
  find('label-state').textContent = STATES[current.state] ?? (current.isProposed ? 'Proposed' : 'Not labeled');
  const { state, by, at } = current;
  find('label-saver').replaceChildren(...(at && state !== 'unlabeled' ? [by && `by ${by}, `, timeOf(at)] : []));
  find('label-eraser')?.setAttribute('aria-pressed', String(canvas.isErasing));
  find('label-skip').setAttribute('aria-pressed', String(current.state === 'skipped'));
  if (canvas.objects) listObjects();
}

function listObjects() {
  const { objects, selected } = canvas;
  const list = find('label-objects');
  find('label-count').textContent = objects.length.toLocaleString('en');
  const listed = objects.slice(0, LISTED);
  while (list.children.length > listed.length) list.lastChild.remove();
  for (const [at, object] of listed.entries()) {
    const item = list.children[at] ?? list.appendChild(element('li', '', button('button button-small', '', () => canvas.select(canvas.objects[at]))));
    const { name, color, is_deleted: isDeleted } = classes[object.class] ?? { name: '?', color: '#888888' };
    const words = `${name}${isDeleted ? ', deleted class' : ''}${object.rings ? ', polygon' : ''}${object.from ? ', proposed' : ''}`;
    if (item.dataset.shown !== words + color) {
      Object.assign(item, { title: words }).dataset.shown = words + color;
      item.firstChild.replaceChildren(element('span', { class: 'class-swatch', '--color': color }), element('span', 'clipped', words));
    }
    item.firstChild.setAttribute('aria-pressed', String(object === selected));
  }
  const edges = find('label-edges');
  edges.hidden = !selected?.box;
  if (edges.hidden || edges.contains(document.activeElement)) return;
  for (const [at, value] of bounds(selected).entries()) edges.querySelectorAll('input')[at].value = value;
}

find('label-edges').addEventListener('change', ({ currentTarget }) => {
  const values = [...currentTarget.querySelectorAll('input')].map((input) => input.valueAsNumber);
  const [left, top, right, bottom] = values;
  const isInside = left >= 0 && top >= 0 && right <= current.width && bottom <= current.height;
  if (canvas.isLocked) return;
  if (isInside && right - left >= 1 && bottom - top >= 1) canvas.change(canvas.selected, { box: values });
  else toast('The box must be inside of the image, and at least one pixel wide and high.', 'info');
});

find('label-tools').prepend(
  ...canvas.tools.map(([tool, words, key]) => {
    const made = button('button button-small', '', () => canvas.setTool(tool));
    made.dataset.tool = tool;
    made.title = `${words} (${key.toUpperCase()})`;
    made.append(words, element('kbd', '', key.toUpperCase()));
    return made;
  }),
);

function listClasses() {
  const ignored = field === 'mask' ? [{ id: IGNORED, name: 'Not trained', color: '#808080' }] : [];
  classButtons.clear();
  find('label-classes')?.replaceChildren(
    ...[...shownClasses(), ...ignored].map(({ id, name, color }, at) => {
      const made = button('button button-small', '', () => choose(id));
      made.setAttribute('aria-pressed', 'false');
      classButtons.set(id, made);
      made.append(element('span', { class: 'class-swatch', '--color': color }), element('bdi', 'clipped', name), canvas.classKeys[at] ? element('kbd', '', canvas.classKeys[at].toUpperCase()) : '');
      return made;
    }),
  );
  shown();
}

/** Shows the classes as somebody has changed them. */
function setClasses(fresh) {
  classes.splice(0, classes.length, ...fresh);
  canvas.useClasses();
  listClasses();
}

async function loadClasses() {
  const fresh = await getJson(`${url}.json`).catch(() => null);
  if (fresh) setClasses(fresh.classes);
}

listClasses();
join(job);
document.addEventListener('job-update', ({ detail }) => detail.job_id === job && detail.attribute === 'classes' && setClasses(detail.value));
document.addEventListener('live-joined', ({ detail }) => detail.missed && loadClasses());

// Keys

const groups = keysOf(canvas, actions);
const bound = boundTo(groups);
find('label-keys').append(...listOf(groups));

/** Returns what a key does. Until the next image is on the page, it may only choose how to draw there. */
function actOf(name) {
  const chosen = shownClasses()[canvas.classKeys.indexOf(name)];
  const [tool] = canvas.tools.find(([, , key]) => key === name) ?? [];
  if (chosen) return () => choose(chosen.id);
  if (tool) return () => canvas.setTool(tool);
  if (name === ' ') return () => pan(true);
  return bound[name] && (() => canvas.isLocked || bound[name]());
}

document.addEventListener('keydown', (event) => {
  const { key, target: at } = event;
  if (document.querySelector('dialog[open]') || event.altKey) return;
  if (typesText(at)) {
    if (key === 'Enter' && field === 'numbers') (at.dispatchEvent(new Event('change')), actions.accept());
    else if (key === 'Escape') find('label-frame').focus();
    return;
  }
  if (at.closest?.('button, a, summary') && (key === 'Enter' || key === ' ')) return;
  const act = actOf(nameOf(event));
  if (!act) return;
  event.preventDefault();
  act();
});
document.addEventListener('keyup', ({ key }) => key === ' ' && pan(false));

function pan(isPanning) {
  canvas.isPanning = isPanning;
  canvas.draw();
}

/** Finds a class by its name: Enter chooses the first one that is shown. */
find('label-search')?.addEventListener('input', ({ target: { value } }) => {
  const part = value.trim().toLowerCase();
  for (const [id, item] of classButtons) item.hidden = !(classes[id]?.name ?? item.textContent).toLowerCase().includes(part);
});
find('label-search')?.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  event.preventDefault();
  find('label-classes').querySelector('button:not([hidden])')?.click();
  Object.assign(event.target, { value: '' }).dispatchEvent(new Event('input'));
  find('label-frame').focus();
});

document.addEventListener('click', ({ target: at }) => actions[at.closest('[data-act]')?.dataset.act]?.());
for (const name of ['keydown', 'pointermove', 'pointerdown', 'wheel']) {
  const count = () => {
    const now = performance.now();
    active.seconds += Math.min(IDLE_SECONDS, (now - active.last) / 1000);
    active.last = now;
  };
  document.addEventListener(name, count, { passive: true, capture: true });
}

await turn(() => open(first));
find('label-frame').focus();
