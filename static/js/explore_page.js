// The gallery: split, class and page change in place to keep the focus; clicking an image enlarges it.

import { toast } from './dialog.js';
import { startViewer } from './image_viewer.js';
import { request } from './http.js';
import { startEditing } from './label_editor.js';
import { morph } from './morph.js';

const box = document.getElementById('explore');
let asked = 0;

async function show(url) {
  const number = (asked += 1);
  box.setAttribute('aria-busy', 'true');
  try {
    const response = await request(url, { headers: { Accept: 'text/html' } });
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html').getElementById('explore');
    if (number !== asked) return;
    const { activeElement: focused } = document;
    const values = new FormData(fresh.querySelector('form'));
    morph(box, fresh);
    fill(values);
    hideSubmit();
    drawEdits();
    // The last page has no link to a next one.
    if (!focused.isConnected) box.querySelector('.pager [aria-current]')?.focus({ preventScroll: true });
  } catch (error) {
    if (number === asked) toast(error.message, 'danger');
  } finally {
    if (number === asked) box.removeAttribute('aria-busy');
  }
}

/** Sets controls explicitly: values changed by the user ignore new default values. */
function fill(values) {
  const { elements } = document.getElementById('explore-form');
  for (const [name, value] of values) elements[name].value = value;
}

function go(url) {
  history.pushState(null, '', url);
  return show(url);
}

function hideSubmit() {
  box.querySelector('[data-without-script]').hidden = true;
}

box.addEventListener('change', ({ target }) => {
  const { form } = target;
  if (!form) return; // a choice for the changes of images
  if (target.id === 'show-drawings') {
    document.body.classList.toggle('drawings-hidden', !target.checked);
    return;
  }
  const query = new URLSearchParams(new FormData(form));
  if (!query.get('label')) query.delete('label');
  go(`${form.action}?${query}`);
});
box.addEventListener('click', async (event) => {
  const link = event.target.closest('.pager a');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  await go(link.href);
  box.scrollIntoView();
});
window.addEventListener('popstate', () => show(location.href));

// Enlarge small images with sharp pixels; downscale large ones smoothly.
const smooth = (image) => image.classList.toggle('pixelated', image.naturalWidth < image.clientWidth);
box.addEventListener('load', ({ target }) => target.matches('img') && smooth(target), true);
for (const image of box.querySelectorAll('img')) if (image.complete) smooth(image);

hideSubmit();
const drawEdits = startEditing(box);
startViewer(document.getElementById('viewer'), box);
