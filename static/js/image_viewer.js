// Shows an enlarged image of a gallery in a dialog, with details of its record. Buttons and arrow keys show neighbors.

import { element } from './element.js';
import { bytes, number } from './format.js';
import { getJson } from './http.js';

const SPLITS = { train: 'Training', val: 'Validation', test: 'Test' };
const FORMATS = { png: 'PNG', jpeg: 'JPEG', raw: 'raw pixels', float32: 'float32 array' };

/** Opens `dialog` for links with data-enlarge in `gallery`, including links added later. */
export function startViewer(dialog, gallery) {
  const image = dialog.querySelector('img');
  const drawn = image.parentElement;
  const frame = drawn.parentElement;
  let current = null;

  const links = () => [...gallery.querySelectorAll('[data-enlarge]')];

  const show = (link) => {
    current = link;
    const small = link.querySelector('img');
    const [label, file] = link.closest('figure').querySelectorAll('figcaption bdi');
    image.src = link.href;
    image.alt = small.alt;
    for (const old of frame.querySelectorAll('.mask, .box, .arrow-drawing, .beside')) old.remove();
    for (const drawing of link.querySelectorAll('.mask, .box, .arrow-drawing')) drawn.append(drawing.cloneNode(true));
    for (const target of link.querySelectorAll('.beside')) frame.append(target.cloneNode(true));
    for (const picture of frame.querySelectorAll('[data-full]')) picture.src = picture.dataset.full;
    dialog.querySelector('#viewer-label bdi').textContent = label.title;
    dialog.querySelector('[data-file]').textContent = file.title;
    dialog.querySelector('[data-original]').href = link.href;
    showRecord(dialog, link.href);
    const all = links();
    // Do not disable the button: it would lose the focus.
    for (const button of dialog.querySelectorAll('[data-step]')) {
      button.setAttribute('aria-disabled', String(!all[all.indexOf(link) + Number(button.dataset.step)]));
    }
  };

  const step = (by) => {
    const all = links();
    const next = all[all.indexOf(current) + by];
    if (next) show(next);
  };

  // Scale small images by integers, so that all pixels have the same size.
  image.addEventListener('load', () => {
    const { naturalWidth: width, naturalHeight: height } = image;
    const beside = frame.querySelector('.beside');
    const scale = Math.min(frame.clientWidth / width / (beside ? 2 : 1), frame.clientHeight / height);
    image.style.width = `${Math.max(1, width * (scale > 1 ? Math.floor(scale) : scale))}px`;
    if (beside) beside.style.width = image.style.width;
    image.classList.toggle('pixelated', scale > 1);
    dialog.querySelector('[data-size]').textContent = `${width} × ${height} pixels.`;
  });
  gallery.addEventListener('click', (event) => {
    const link = event.target.closest('[data-enlarge]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(link);
    dialog.showModal();
  });
  dialog.addEventListener('click', (event) => {
    const button = event.target.closest('[data-step]');
    if (button) step(Number(button.dataset.step));
    else if (event.target === dialog) dialog.close(); // the backdrop
  });
  dialog.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  // Focus the image that was shown last, not the one that was clicked.
  dialog.addEventListener('close', () => current?.querySelector('img').isConnected && current.focus());
}

/** Shows details of the record whose image is at `url`, unless another one is shown by then. */
async function showRecord(dialog, url) {
  const facts = dialog.querySelector('[data-facts]');
  if (!facts) return;
  const features = dialog.querySelector('[data-features]');
  dialog.dataset.record = url;
  let record = null;
  try {
    record = await getJson(`${url}.json`);
  } catch {
    // The image and its name remain.
  }
  if (dialog.dataset.record !== url) return;
  facts.hidden = features.hidden = !record;
  if (!record) return;
  facts.replaceChildren(...factsOf(record).flatMap(([title, ...texts]) => fact(title, texts)));
  features.querySelector('dl').replaceChildren(
    ...Object.entries(record.features).flatMap(([name, { count, values }]) => {
      const more = count > values.length ? ` … (${number(count)} values)` : '';
      return fact(name, [values.join(', ') + more]);
    }),
  );
}

function factsOf({ split, number: place, source, image, statistics, findings }) {
  const found = [['Record', `${SPLITS[split]}, number ${number(place)}`]];
  if (source) found.push(['Source', `${source.width} × ${source.height} pixels, ${source.mode}`]);
  const channels = `${image.channels} ${image.channels === 1 ? 'channel' : 'channels'}`;
  const shape = `${image.width} × ${image.height}, ${channels}`;
  found.push(['Stored', `${shape}, ${FORMATS[image.format] ?? image.format}, ${bytes(image.bytes)}`]);
  if (statistics) {
    found.push(['Brightness', `${Math.round(statistics.brightness)} of 255, contrast ${Math.round(statistics.contrast)}`]);
  }
  if (findings.length) found.push(['Findings', ...findings.map(findingLink)]);
  return found;
}

function findingLink({ title, url }) {
  const link = element('a', '', title);
  link.href = url;
  return link;
}

function fact(title, contents) {
  const value = element('dd', 'break');
  contents.forEach((content, place) => value.append(place ? ', ' : '', content));
  return [element('dt', '', title), value];
}
