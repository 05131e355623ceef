// The drop zone of the form that predicts from many images: sorts files into the fields for images, an archive and a list.

import { droppedFiles, startDropping } from './dropped_files.js';

const ARCHIVE = /\.(zip|tar|tgz|tar\.(gz|bz2|xz))$/i;
const LIST = /\.(txt|csv)$/i;

/** The files for each field of the form: {files, archive, list}. Hidden files are left out. */
export function sortFiles(files) {
  const shown = files.filter(({ name }) => !name.startsWith('.'));
  const archive = shown.find(({ name }) => ARCHIVE.test(name));
  const list = shown.find(({ name }) => LIST.test(name));
  return { files: shown.filter(({ name }) => !ARCHIVE.test(name) && !LIST.test(name)), archive, list };
}

export function startManyImages(drop) {
  if (!drop) return;
  const [files, archive, list] = ['many-files', 'many-archive', 'many-list'].map((id) => document.getElementById(id));
  const words = drop.querySelector('[data-chosen]');

  function take(given) {
    const sorted = sortFiles(given);
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
