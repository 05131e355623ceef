// The box that shows an error: as the server renders it, or for an error of the page itself or of a task.

import { element, markup, notice } from './element.js';
import { isolateQuoted } from './names.js';

/** A node for a RequestError, or for `{message, hint}`. */
export function errorBox({ message, hint, box }) {
  if (box) return markup(box).firstElementChild;
  const made = notice('tone-danger', element('strong', '', isolateQuoted(message)), hint ? element('p', 'hint', hint) : '');
  made.setAttribute('role', 'alert');
  return made;
}
