// An error with its hint and stack trace, the user's own frames first, with the same shape as error_box in _job.html.

import { element, notice } from './element.js';
import { countOf } from './format.js';
import { isolateQuoted } from './names.js';

/** A node for `{message, hint, trace, detail}`. */
export function errorBox({ message, hint, trace = [], detail = '' }) {
  const own = trace.filter((frame) => frame.own);
  const others = trace.filter((frame) => !frame.own);
  const box = notice(
    'tone-danger',
    element('strong', '', isolateQuoted(message)),
    hint ? element('p', 'hint', hint) : '',
    own.length ? list(own) : '',
    others.length && (own.length || !hint) ? disclosure(own.length ? `Show ${countOf(others.length, 'library frame')}` : 'Show traceback', list(others)) : '',
    detail ? disclosure('Original message', element('pre', { class: 'trace trace-text', tabindex: 0 }, detail)) : '', // scrolls by keyboard
  );
  box.setAttribute('role', 'alert');
  return box;
}

const disclosure = (title, content) => element('details', 'disclosure', element('summary', '', title), content);

function list(frames) {
  const items = frames.map(({ own, file, line, function: name, code }) =>
    element(
      'li',
      own ? 'own' : '',
      element('span', 'break', `${file}, `, element('b', '', `line ${line}`), name ? `, in ${name}` : ''),
      code ? element('pre', '', element('code', '', code)) : '',
    ),
  );
  return element('ol', 'plain trace', ...items);
}
