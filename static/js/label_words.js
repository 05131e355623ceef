// Entries of the log of labels in words: what they contain, and what each one changed.

import { countOf } from './format.js';

export const STATES = { labeled: 'Labeled', reviewed: 'Reviewed', skipped: 'Skipped', unlabeled: 'Not labeled' };
// The page rounds to hundredths of a pixel.
const EXACT = 0.02;

const nameIn = (classes) => (id) => classes[id]?.name ?? id;

/** The state of an entry and what it contains, by the names of the `classes` of the job. */
export function wordsOfEntry({ state, objects, label, labels, numbers, mask }, classes) {
  const name = nameIn(classes);
  const several = (ids, none = '') => [...new Set(ids)].map(name).join(', ') || none;
  const words = objects ? [countOf(objects.length, 'object'), several(objects.map((object) => object.class))].filter(Boolean).join(': ')
    : mask ? several(labels, 'a mask') : labels ? several(labels, 'no label') : numbers ? Object.entries(numbers).map(([id, value]) => `${name(id)} ${value}`).join(', ') : label === undefined ? '' : name(label);
  return `${STATES[state]}${words && ', '}${words}.`;
}

/** What is different in an entry from the one `before`: "1 dog moved, −1 cat", "width 3 → 4". */
export function changeOf(entry, before, classes) {
  const name = nameIn(classes);
  const ids = ({ label, labels = [] }) => (label === undefined ? labels : [label]);
  const words = [
    ...lacking(ids(entry), ids(before)).map((id) => `+ ${name(id)}`),
    ...lacking(ids(before), ids(entry)).map((id) => `− ${name(id)}`),
    ...changeOfObjects(entry.objects ?? [], before.objects ?? [], name),
  ];
  const { numbers = {} } = entry;
  const { numbers: earlier = {} } = before;
  for (const id of Object.keys({ ...earlier, ...numbers })) if (numbers[id] !== earlier[id]) words.push(`${name(id)} ${earlier[id] ?? '–'} → ${numbers[id] ?? '–'}`);
  return words.join(', ') || (entry.mask === before.mask ? '' : 'repainted');
}

function changeOfObjects(objects, earlier, name) {
  const key = ({ class: id, box, rings }) => JSON.stringify([id, box, rings]);
  const fresh = lacking(objects, earlier, key);
  const gone = lacking(earlier, objects, key);
  const change = (id) => {
    const [now, then] = [fresh, gone].map((items) => items.filter((item) => item.class === id));
    const pairs = Math.min(now.length, then.length);
    const moved = now.slice(0, pairs).filter((object, at) => isMoved(object, then[at])).length;
    const counts = [['', moved, ' moved'], ['', pairs - moved, ' reshaped'], ['+', now.length - pairs, ''], ['−', then.length - pairs, '']];
    return counts.filter(([, count]) => count).map(([sign, count, what]) => `${sign}${count} ${name(id)}${what}`);
  };
  return [...new Set([...fresh, ...gone].map((item) => item.class))].flatMap(change);
}

/** Whether all corners of two objects differ by the same distance. */
function isMoved(object, earlier) {
  const [now, then] = [object, earlier].map(({ box, rings }) => box ?? rings.flat());
  return now.length === then.length && now.every((value, at) => Math.abs(value - then[at] - (now[at % 2] - then[at % 2])) < EXACT);
}

/** Those of the `items` that `others` lack; of equal ones, as many as there are more. */
function lacking(items, others, key = String) {
  const counts = new Map();
  for (const other of others) counts.set(key(other), (counts.get(key(other)) ?? 0) + 1);
  return items.filter((item) => {
    const count = counts.get(key(item)) ?? 0;
    counts.set(key(item), count - 1);
    return count <= 0;
  });
}
