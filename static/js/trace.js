// An error with its hint and stack trace, the user's own frames first: the same shape as error_box in _job.html.

/** A node for `{message, hint, trace}`. */
export function errorBox({ message, hint, trace = [] }) {
  const box = element('div', 'notice tone-danger', '');
  box.setAttribute('role', 'alert');
  const body = element('div', 'notice-body', '');
  body.append(element('strong', '', message));
  if (hint) body.append(element('p', 'hint', hint));
  const own = trace.filter((frame) => frame.own);
  const others = trace.filter((frame) => !frame.own);
  if (own.length) body.append(list(own));
  if (others.length) body.append(disclosure(others, own.length === 0));
  box.append(body);
  return box;
}

function disclosure(frames, open) {
  const details = element('details', 'disclosure', '');
  details.open = open;
  details.append(element('summary', '', `${frames.length} more ${frames.length === 1 ? 'frame' : 'frames'} outside of your network`), list(frames));
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

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
