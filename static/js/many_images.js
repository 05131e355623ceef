// The drop zone of the form that predicts from many images: sorts files into the fields for images, an archive and a list.

import { droppedFiles, hasEnding, startDropping } from './dropped_files.js';

/** The files for each field of the form: {files, archive, list}, by the endings of the latter two. Hidden files are left out. */
export function sortFiles(files, archives, lists) {
  const shown = files.filter(({ name }) => !name.startsWith('.'));
  const archive = shown.find((file) => hasEnding(file, archives));
  const list = shown.find((file) => hasEnding(file, lists));
  return { files: shown.filter((file) => !hasEnding(file, `${archives},${lists}`)), archive, list };
}

export function startManyImages(drop) {
  if (!drop) return;
  const [files, archive, list] = ['many-files', 'many-archive', 'many-list'].map((id) => document.getElementById(id));
  const words = drop.querySelector('[data-chosen]');

  function take(given) {
    const sorted = sortFiles(given, archive.accept, list.accept);
    files.files = transfer(sorted.files);
    archive.files = transfer([sorted.archive]);
    list.files = transfer([sorted.list]);
    const count = sorted.files.length;
    const images = count === 1 ? sorted.files[0].name : count ? `${count.toLocaleString('en')} images` : '';
    words.textContent = [images, sorted.archive?.name, sorted.list?.name].filter(Boolean).join(', ');
  }

  files.addEventListener('change', () => take([...files.files]));
  startDropping(drop, drop, async (dropped) => take((await droppedFiles(dropped)).map(({ file }) => file)));
}

function transfer(files) {
  const data = new DataTransfer();
  for (const file of files) if (file) data.items.add(file);
  return data.files;
}
