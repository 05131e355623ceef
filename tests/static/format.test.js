import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, ahead, bytes, countOf, duration, elapsed, number, percent, shortDuration, tick } from '../../static/js/format.js';
import words from './words.json' with { type: 'json' };

const each = (name, format, cases) => test(name, () => {
  for (const [...words] of cases) assert.equal(format(...words.slice(0, -1)), words.at(-1));
});

const SHARED = { duration, ago: (seconds) => ago(-seconds, 0), ahead: (seconds) => ahead(seconds, 0), bytes, number, count: (count) => countOf(count, 'file') };
for (const [name, cases] of Object.entries(words)) each(`words of the server: ${name}`, SHARED[name], cases);

each('numbers must be finite', number, [[undefined, '–'], [NaN, '–'], [-Infinity, '–']]);

each('short durations have two units at most', shortDuration, [
  [NaN, '?'], [0.012, '12 ms'], [0.9994, '999 ms'], [1, '1.0 s'], [9.94, '9.9 s'], [59.4, '59 s'], [59.6, '1 min 0 s'], [125, '2 min 5 s'],
  [4800, '1 h 20 min'], [90000, '1 d 1 h'],
]);

each('times on an axis leave out parts that are zero', elapsed, [
  [0, '0'], [0.25, '0.25 s'], [30, '30 s'], [60, '1 min'], [90, '1 min 30 s'], [7200, '2 h'], [86400, '1 d'], [90061, '1 d 1 h'],
]);

each('labels of an axis have the decimals of their distance', tick, [
  [0.5, 0.1, '0.5'], [2, 1, '2'], [0.25, 0.25, '0.25'], [1500, 500, '1,500'], [0.3, 0.05, '0.30'], [0, 1e-7, '0'],
  [2e-7, 1e-7, '2e-7'], [7.5e-7, 2.5e-7, '7.5e-7'], [3e-6, 1e-6, '3e-6'],
  [2_500_000, 500_000, '2.5M'], [0, 500_000, '0'], [4e22, 2e22, '4.0e+22'],
]);

each('percentages have a decimal', percent, [[null, '–'], [undefined, '–'], [99.94, '99.9%'], [12.345, 2, '12.35%']]);
