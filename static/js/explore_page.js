// The gallery: filters and pages change in place to keep the focus; clicking an image enlarges it.

import { toast } from './dialog.js';
import { settled } from './settled.js';
import { startViewer } from './image_viewer.js';
import { startEditing } from './label_editor.js';
import { morph } from './morph.js';
import { fragment, swapping } from './swap.js';

const TYPING_MILLISECONDS = 300;
const SEARCH = 'explore-q';

const box = document.getElementById('explore');
const swap = swapping(box, (error) => toast(error.message, 'danger'));

/** Shows the page `url` in place; `isPast` if it is an entry of the history. */
function show(url, isPast = false) {
  return swap(
    (signal) => fragment(url, { signal }),
    (page) => {
      const fresh = page.getElementById('explore');
      const { activeElement: focused } = document;
      const wasInPager = Boolean(focused.closest('.pager'));
      const controls = [...fresh.querySelectorAll('#explore-form [name][id]')].map(({ id, value, checked }) => ({ id, value, checked }));
      morph(box, fresh);
      fill(controls, isPast);
      hideSubmit();
      editor.draw();
      // The last page has no link to a next one, and a removed filter none to remove it.
      if (!focused.isConnected) box.querySelector(wasInPager ? '.pager [aria-current]' : `#${SEARCH}`)?.focus({ preventScroll: true });
    },
  );
}

/** Sets controls explicitly: values changed by the user ignore new default values. A text being typed is kept. */
function fill(controls, isPast) {
  for (const { id, value, checked } of controls) {
    const control = document.getElementById(id);
    const isTyped = control === document.activeElement && control.matches('input.input');
    if (control && (isPast || !isTyped)) Object.assign(control, { value, checked });
  }
}

function go(url, isSame = false) {
  if (isSame) history.replaceState(null, '', url);
  else history.pushState(null, '', url);
  return show(url);
}

/** The URL of the filters in `form`, without those that are empty. */
function address(form) {
  const query = new URLSearchParams();
  const fields = new FormData(form);
  for (const name of new Set(fields.keys())) {
    // A range has two fields.
    const value = fields.getAll(name).map((text) => text.trim()).join(':');
    if (value && value !== ':') query.set(name, value);
  }
  return `${form.action}?${query}`;
}

function hideSubmit() {
  box.querySelector('[data-without-script]').hidden = true;
}

box.addEventListener('change', ({ target }) => {
  const { form } = target;
  if (!form || target.id === SEARCH) return; // a choice for the changes of images
  if (target.id === 'show-drawings') {
    document.body.classList.toggle('drawings-hidden', !target.checked);
    return;
  }
  go(address(form));
});

let isTyping = false; // The text of one search is one entry of the history.
function search(form) {
  const url = address(form);
  if (url === location.href) return;
  go(url, isTyping);
  isTyping = true;
}
const searchSoon = settled(() => search(document.getElementById(SEARCH).form), TYPING_MILLISECONDS);
box.addEventListener('input', ({ target }) => {
  if (target.id === SEARCH) searchSoon();
});
box.addEventListener('focusout', ({ target }) => {
  if (target.id === SEARCH) isTyping = false;
});
box.addEventListener('submit', (event) => {
  event.preventDefault();
  search(event.target);
});
box.addEventListener('click', async (event) => {
  const link = event.target.closest('.pager a, [data-go]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  await go(link.href);
  if (link.closest('.pager')) box.scrollIntoView();
});
window.addEventListener('popstate', () => show(location.href, true));

// Enlarge small images with sharp pixels; downscale large ones smoothly.
const smooth = (image) => image.classList.toggle('pixelated', image.naturalWidth < image.clientWidth);
box.addEventListener('load', ({ target }) => target.matches('img') && smooth(target), true);
for (const image of box.querySelectorAll('img')) if (image.complete) smooth(image);

// What was typed before this script was loaded.
const typed = document.getElementById(SEARCH);
if (typed && typed.value !== typed.defaultValue) search(typed.form);

hideSubmit();
const viewer = document.getElementById('viewer');
const editor = startEditing(box, viewer);
startViewer(viewer, box, { shown: editor.enlarge, pressed: editor.press });
