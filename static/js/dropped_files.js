// The files that a user chooses or drops, with their paths relative to what was chosen.

/** The files of a file input, as [{path, file}]. */
export function chosenFiles(input) {
  return [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** Whether the name of a file has one of the `endings`, such as ".tar.gz,.zip". */
export const hasEnding = ({ name }, endings) => endings.split(',').some((ending) => name.toLowerCase().endsWith(ending));

/** The dropped files, including those in folders, as a promise of [{path, file}]. Call it in the event handler. */
export async function droppedFiles(transfer) {
  // The items are gone once the event handler has returned.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const found = [];
  for (const entry of entries) await collect(entry, found);
  return found;
}

/** Marks `place` while files are dragged over `area`, which contains it, and passes the DataTransfer of a drop to `take`. */
export function startDropping(area, place, take) {
  area.addEventListener('dragover', (event) => {
    if (!event.dataTransfer.types.includes('Files')) return;
    event.preventDefault();
    place.classList.add('over');
  });
  area.addEventListener('dragleave', (event) => {
    if (!area.contains(event.relatedTarget)) place.classList.remove('over');
  });
  area.addEventListener('drop', (event) => {
    event.preventDefault();
    place.classList.remove('over');
    take(event.dataTransfer);
  });
}

async function collect(entry, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    found.push({ path: entry.fullPath.replace(/^\//, ''), file });
    return;
  }
  const reader = entry.createReader();
  // Each call returns some of the entries; the last one returns none.
  for (let batch = await next(reader); batch.length; batch = await next(reader)) {
    for (const child of batch) await collect(child, found);
  }
}

const next = (reader) => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
