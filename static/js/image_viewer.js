// Shows an enlarged image of a gallery in a dialog, with details of its record. Buttons and arrow keys show neighbors.

import { element } from './element.js';
import { bytes, countOf } from './format.js';
import { getJson } from './http.js';
import { Zoom } from './zoom.js';

const SPLITS = { train: 'Training', val: 'Validation', test: 'Test' };
const FORMATS = { png: 'PNG', jpeg: 'JPEG', raw: 'raw pixels', float32: 'float32 array' };
const MODES = { 1: 'black and white', L: 'grayscale', LA: 'grayscale with transparency', P: 'palette', RGB: 'color', RGBA: 'color with transparency', CMYK: 'CMYK' };
const DRAWINGS = '.mask, .box, .arrow-drawing';

/**
 * Opens `dialog` for links with data-enlarge in `gallery`, including links added later. The neighbors of an image are
 * those in its part with data-gallery, if there are parts. `shown` is called with the link
 * of each image that is shown, and `pressed` with other keys.
 */
export function startViewer(dialog, gallery, { shown = () => {}, pressed = () => {} } = {}) {
  const stage = dialog.querySelector('[data-stage]');
  const canvas = stage.querySelector('[data-canvas]');
  const [drawn] = canvas.children;
  const image = drawn.querySelector('img');
  const zoom = new Zoom(stage, canvas, (scale) => {
    dialog.querySelector('[data-scale]').textContent = `${Math.round(100 * scale)}%`;
  });
  const acts = { in: () => zoom.in(), out: () => zoom.out(), fit: () => zoom.reset() };
  const keys = { '+': acts.in, '=': acts.in, '-': acts.out, 0: acts.fit };
  let current = null;

  const links = () => [...(current.closest('[data-gallery]') ?? gallery).querySelectorAll('[data-enlarge]')];

  const show = (link) => {
    current = link;
    const [label, file] = link.closest('figure')?.querySelectorAll('figcaption bdi') ?? [];
    image.src = link.href;
    image.alt = link.querySelector('img').alt;
    for (const old of canvas.querySelectorAll(`${DRAWINGS}, .beside, .source-pixels`)) old.remove();
    for (const drawing of link.querySelectorAll(DRAWINGS)) if (!drawing.closest('.beside')) drawn.append(drawing.cloneNode(true));
    for (const target of link.querySelectorAll('.beside')) canvas.append(target.cloneNode(true));
    for (const picture of canvas.querySelectorAll('[data-full]')) picture.src = picture.dataset.full;
    dialog.querySelector('#viewer-label bdi').textContent = link.dataset.label ?? label?.title ?? '';
    dialog.querySelector('[data-file]').textContent = link.dataset.file ?? file?.title ?? '';
    dialog.querySelector('[data-original]').href = link.href;
    showRecord(dialog, link.href);
    const all = links();
    const place = all.indexOf(link);
    dialog.querySelector('[data-place]').textContent = `${place + 1} of ${all.length}`;
    // Do not disable the button: it would lose the focus.
    for (const button of dialog.querySelectorAll('[data-step]')) {
      button.setAttribute('aria-disabled', String(!all[place + Number(button.dataset.step)]));
    }
    shown(link);
  };

  const step = (by) => {
    const all = links();
    const next = all[all.indexOf(current) + by];
    if (next) show(next);
  };

  image.addEventListener('load', () => {
    const { naturalWidth: width, naturalHeight: height } = image;
    zoom.setSize(width * canvas.children.length, height);
    dialog.querySelector('[data-size]').textContent = `${width} × ${height} pixels.`;
  });
  gallery.addEventListener('click', (event) => {
    const link = event.target.closest('[data-enlarge]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    dialog.showModal();
    show(link);
  });
  dialog.addEventListener('click', (event) => {
    const button = event.target.closest('[data-step], [data-zoom]');
    if (button) (acts[button.dataset.zoom] ?? (() => step(Number(button.dataset.step))))();
    else if (event.target === dialog) dialog.close(); // the backdrop
  });
  dialog.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input, select, textarea')) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
    else if (keys[event.key] && !(event.key === '0' && pressed(event.key))) keys[event.key]();
    else if (!pressed(event.key)) return;
    event.preventDefault();
  });
  // Focus the image that was shown last, not the one that was clicked.
  dialog.addEventListener('close', () => current?.querySelector('img').isConnected && current.focus());
  return { step };
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
  if (!dialog.querySelector('#viewer-label bdi').textContent) dialog.querySelector('#viewer-label bdi').textContent = record.label || 'Image';
  dialog.querySelector('[data-file]').textContent = record.filename;
  if (record.source?.url) showSource(dialog, record.source);
  facts.replaceChildren(...factsOf(record).flatMap(([title, ...texts]) => fact(title, texts)));
  features.querySelector('dl').replaceChildren(
    ...Object.entries(record.features).flatMap(([name, { count, values }]) => {
      const more = count > values.length ? ` … (${count.toLocaleString('en')} values)` : '';
      return fact(name, [values.join(', ') + more]);
    }),
  );
}

/** Lays the pixels of the source over the resized image, below what is drawn on it. */
function showSource(dialog, { url }) {
  const [image] = dialog.querySelectorAll('[data-canvas] img');
  const pixels = element('img', { class: 'source-pixels', src: url });
  pixels.alt = ''; // the image below it has a text
  // The picture of another record may have been removed by then.
  pixels.addEventListener('error', () => pixels.remove());
  image.after(pixels);
}

function factsOf({ split, number, source, image, statistics, findings }) {
  const found = [['Split', `${SPLITS[split]}, record ${number.toLocaleString('en')}`]];
  if (source) {
    const words = `${source.width} × ${source.height} pixels, ${MODES[source.mode] ?? source.mode}`;
    found.push(['Source', source.url ? `${words}; shown here` : words]);
  }
  const shape = `${image.width} × ${image.height}, ${countOf(image.channels, 'channel')}`;
  found.push(['In the dataset', `${shape}, ${FORMATS[image.format] ?? image.format}, ${bytes(image.bytes)}`]);
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
