// Syntax highlighting for read-only Python text: one pass with one regular expression, without loading the editor.

import { element } from './element.js';

const TOKENS = new RegExp(
  [
    '(?<comment>#[^\\n]*)',
    '(?<string>[rbfuRBFU]{0,2}(?:"""[\\s\\S]*?"""|\'\'\'[\\s\\S]*?\'\'\'|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'))',
    '(?<keyword>\\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\\b)',
    '(?<number>\\b\\d[\\d_.]*(?:e[+-]?\\d+)?\\b)',
    '(?<name>@[\\w.]+|(?<=\\b(?:def|class)\\s+)\\w+)',
  ].join('|'),
  'g',
);

/** Highlights the text in the element `code` by wrapping tokens in spans of class tok-…. */
export function highlightPython(code) {
  const text = code.textContent;
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    pieces.push(text.slice(end, match.index), element('span', `tok-${kind}`, match[0]));
    end = match.index + match[0].length;
  }
  code.replaceChildren(...pieces, text.slice(end));
}
