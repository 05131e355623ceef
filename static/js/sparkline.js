// A sparkline with the same shape as that of the filter in template_filters.py.

import { number } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';

/** The path of a line through at least two `numbers`. */
export function linePath(numbers) {
  const low = Math.min(...numbers);
  const span = Math.max(...numbers) - low || 1;
  return `M${numbers.map((value, index) => `${round((index * 100) / (numbers.length - 1))} ${round(26 - ((value - low) / span) * 24)}`).join('L')}`;
}

/** Draws `numbers` in place of `element`, which has data-sparkline. */
export function drawSparkline(element, numbers, label = 'Training loss so far') {
  const known = numbers.filter((value) => value !== null);
  if (known.length < 2) return;
  const path = linePath(known);
  const svg = document.createElementNS(SVG, 'svg');
  const attributes = { class: 'sparkline', viewBox: '0 0 100 28', preserveAspectRatio: 'none', role: 'img', 'data-sparkline': '' };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  svg.setAttribute('aria-label', `${label}: from ${number(known[0])} to ${number(known.at(-1))}`);
  svg.append(shape(`${path}L100 28L0 28Z`, 'area'), shape(path, ''));
  element.replaceWith(svg);
}

function shape(path, name) {
  const element = document.createElementNS(SVG, 'path');
  element.setAttribute('d', path);
  if (name) element.setAttribute('class', name);
  return element;
}

const round = (value) => Math.round(value * 10) / 10;
