// Rendering of user-chosen names of jobs, classes and files. Equivalent to the macro clipped in _macros.html.

import { element } from './element.js';

/** A name with isolated text direction, truncated with an ellipsis at the end of the line. */
export function clipped(text) {
  return element('bdi', { class: 'clipped', title: text }, text);
}

/** `text` with isolated direction, where elements are not possible. */
export const isolate = (text) => `\u2068${text}\u2069`;

/** The nodes of a message whose “quoted” names have an isolated text direction. */
export function isolateQuoted(message) {
  const nodes = new DocumentFragment();
  message.split(/(?<=“)([^”]*)(?=”)/).forEach((part, index) => nodes.append(index % 2 ? element('bdi', '', part) : part));
  return nodes;
}
