// Names that users chose, of jobs, classes and files, among words of ours. The macro clipped in _macros.html makes the same.

import { element } from './element.js';

/** A name whose direction stays its own, cut with an ellipsis where its line ends. */
export function clipped(text) {
  const name = element('bdi', 'clipped', text);
  name.title = text;
  return name;
}

/** `text` isolated where there is no room for an element. */
export const isolate = (text) => `\u2068${text}\u2069`;

/** The nodes of a message in which “quoted” names are isolated, so that their direction does not spread to the other words. */
export function isolateQuoted(message) {
  const nodes = new DocumentFragment();
  message.split(/(?<=“)([^”]*)(?=”)/).forEach((part, index) => nodes.append(index % 2 ? element('bdi', '', part) : part));
  return nodes;
}
