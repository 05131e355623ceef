// The keys of the label page: what they do, and the dialog that lists them.

import { element } from './element.js';

/** The keys by group, each as [keys in words, what they do, {key: act}], for a `canvas` and the `actions` of the page. */
export function keysOf(canvas, actions) {
  const { next, previous, accept, skip, review, copy, undo, redo, fit, hide, help, search } = actions;
  const { zoom } = canvas;
  const tools = canvas.tools.map(([, , key, words]) => [key.toUpperCase(), words]);
  const classes = canvas.classKeys.length ? [['1 … 9, 0', `class of ${canvas.objects ? 'what is drawn next, and of the selected object' : canvas.tools.length ? 'what is drawn next' : 'the image'}`]] : [];
  if (search) classes.push(['/', 'find a class by its name', { '/': search }]);
  return [
    ['Images', [
      ['→ D', 'next image', { ArrowRight: next, d: next }],
      ['← A', 'previous image', { ArrowLeft: previous, a: previous }],
      ['Enter', 'accept, and open the next image to label', { Enter: accept }],
      ['X', 'skip the image, or take it back', { x: skip }],
      ['R', 'mark what somebody else labeled as reviewed', { r: review }],
      ['C', 'copy the labels of the labeled image before', { c: copy }],
    ]],
    ['Classes', classes],
    [canvas.title, [...tools, ...canvas.keys]],
    ['View', [
      ['Wheel + −', 'zoom; two fingers zoom, too', { '+': () => zoom.in(), '=': () => zoom.in(), '-': () => zoom.out() }],
      ['Space', 'hold it and drag to pan; the right mouse button pans, too'],
      ['F', 'fit the image into the window', { f: fit }],
      ['H', 'hide the labels', { h: hide }],
      ['Esc', 'cancel, or deselect', { Escape: () => canvas.cancel() || canvas.select?.(null) }],
      ['Ctrl+Z Ctrl+Y', 'undo and redo', { 'Ctrl+z': undo, 'Ctrl+y': redo, 'Ctrl+Shift+z': redo }],
      ['?', 'these keys', { '?': help }],
    ]],
  ].filter(([, rows]) => rows.length);
}

/** What each key does. */
export const boundTo = (groups) => Object.assign({}, ...groups.flatMap(([, rows]) => rows.map(([, , acts]) => acts)));

/** The name of a key with those that are held. */
export function nameOf({ key, ctrlKey, metaKey, shiftKey }) {
  const isControl = ctrlKey || metaKey;
  return `${isControl ? 'Ctrl+' : ''}${shiftKey && (isControl || key.length > 1) ? 'Shift+' : ''}${key.length === 1 ? key.toLowerCase() : key}`;
}

/** The list of the keys. */
export function listOf(groups) {
  return groups.map(([title, rows]) => element('section', '', element('h3', '', title), element('dl', 'facts', ...rows.flatMap(([keys, words]) => [element('dt', '', element('kbd', '', keys)), element('dd', '', words)]))));
}

/** Whether keys of the page would disturb typing in an element. */
export const typesText = (target) => Boolean(target.matches?.('input, select, textarea'));
