// A drop area for an image file with a path field next to it; previews the selected image.

import { startDropping } from './dropped_files.js';

// Narrower images are enlarged without smoothing.
const SMALL_PIXELS = 96;

/** Returns a function that shows the image at a URL in `image`, which is hidden until it has loaded, or none. */
export function startPreview(image) {
  image.addEventListener('load', () => {
    image.classList.toggle('pixelated', image.naturalWidth < SMALL_PIXELS);
    image.hidden = false;
  });
  return (url) => {
    if (image.src.startsWith('blob:')) URL.revokeObjectURL(image.src);
    image.hidden = true; // so that files that are not images stay hidden
    if (url) image.src = url;
  };
}

/** Initializes `choice`; `imageUrl` returns the image at a path on the server. */
export function startImageChoice(choice, imageUrl) {
  const area = choice.querySelector('.drop');
  const file = choice.querySelector('[type=file]');
  const path = choice.querySelector('[name$=_path]');
  const show = startPreview(choice.querySelector('.drop-image'));

  file.addEventListener('change', () => {
    if (!file.files[0]) return;
    path.value = '';
    show(URL.createObjectURL(file.files[0]));
  });
  path.addEventListener('change', () => {
    file.value = '';
    const chosen = path.value.trim();
    show(chosen && `${imageUrl}?${new URLSearchParams({ path: chosen })}`);
  });
  startDropping(choice, area, ({ files }) => {
    if (!files.length) return;
    file.files = files;
    file.dispatchEvent(new Event('change'));
  });
}
