// The initial weights of a network: in the form after a check, and on the model's page.

import { element, scrolling, table } from './element.js';
import { listed } from './format.js';

const NAMES_SHOWN = 40;

/** A one-line summary: the numbers of restored and of frozen variables. */
export function loadedWeightsNote({ source, taken, missing, of_other_shape: others, frozen }) {
  const count = Object.keys(taken).length;
  const all = count + missing.length + Object.keys(others).length;
  const parts = [];
  if (source) parts.push(`${count} of ${all} variables from ${source}`);
  if (frozen.length) parts.push(`${frozen.length} frozen`);
  return parts.join(' · ');
}

/** A table of all variables that are not both new and trained. */
export function showLoadedWeights(region, loaded) {
  const { source, unused } = loaded;
  const box = scrolling('table-wrap', 'Initial weights', table('table table-tight', ['Variable', 'Initial weights', 'Trained'], rowsOf(loaded)));
  region.replaceChildren(box);
  if (unused.length) {
    region.append(element('p', 'small muted panel-note', `Unused variables in ${source}: ${listed(unused, NAMES_SHOWN)}.`));
  }
}

function rowsOf({ source, taken, missing, of_other_shape: others, frozen, no_weights: noWeights }) {
  const values = new Map(frozen.map((name) => [name, { words: 'own initializer' }]));
  for (const [name, other] of Object.entries(taken)) values.set(name, { words: other === name ? `from ${source}` : `${other} from ${source}` });
  for (const name of missing) values.set(name, { words: `own initializer: not in ${source}`, isNew: true });
  for (const [name, shapes] of Object.entries(others)) values.set(name, { words: `own initializer: its shape in ${source} is ${shapes}`, isNew: true });
  const trained = new Map([...frozen.map((name) => [name, 'no']), ...noWeights.map((name) => [name, 'not a weight'])]);
  return [...values].map(([name, { words, isNew }]) => {
    const value = isNew ? element('td', '', element('span', 'badge tone-warning', 'new'), ` ${words}`) : element('td', '', words);
    return element('tr', '', element('th', { scope: 'row' }, element('code', '', name)), value, element('td', '', trained.get(name) ?? 'yes'));
  });
}
