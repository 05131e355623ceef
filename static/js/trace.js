// An error with its hint and stack trace, the user's own frames first, with the same shape as error_box in _job.html.

import { element } from './element.js';
import { isolateQuoted } from './names.js';

/** A node for `{message, hint, trace, detail}`. */
export function errorBox({ message, hint, trace = [], detail = '' }) {
  const box = element('div', 'notice tone-danger', '');
  box.setAttribute('role', 'alert');
  const body = element('div', 'notice-body', '');
  const headline = element('strong', '', '');
  headline.append(isolateQuoted(message));
  body.append(headline);
  if (hint) body.append(element('p', 'hint', hint));
  const own = trace.filter((frame) => frame.own);
  const others = trace.filter((frame) => !frame.own);
  if (own.length) body.append(list(own));
  if (others.length) body.append(disclosure(others));
  if (detail) body.append(original(detail));
  box.append(body);
  return box;
}

function original(text) {
  const details = element('details', 'disclosure', '');
  const words = element('pre', 'trace trace-text', text);
  words.tabIndex = 0; // to scroll by keyboard
  details.append(element('summary', '', 'Original message'), words);
  return details;
}

function disclosure(frames) {
  const details = element('details', 'disclosure', '');
  details.append(element('summary', '', `Show ${frames.length} library ${frames.length === 1 ? 'frame' : 'frames'}`), list(frames));
  return details;
}

function list(frames) {
  const ordered = element('ol', 'plain trace', '');
  for (const frame of frames) {
    const item = element('li', frame.own ? 'own' : '', '');
    const place = element('span', 'break', `${frame.file}, `);
    place.append(element('b', '', `line ${frame.line}`), frame.function ? `, in ${frame.function}` : '');
    item.append(place);
    if (frame.code) {
      const text = element('pre', '', '');
      text.append(element('code', '', frame.code));
      item.append(text);
    }
    ordered.append(item);
  }
  return ordered;
}
