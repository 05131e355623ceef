// Syntax highlighting for read-only Python text: one pass with one regular expression, without loading the editor.

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

/** Highlights the text in `element` by wrapping tokens in spans of class tok-…. */
export function highlightPython(element) {
  const text = element.textContent;
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    const span = document.createElement('span');
    span.className = `tok-${kind}`;
    span.textContent = match[0];
    pieces.push(text.slice(end, match.index), span);
    end = match.index + match[0].length;
  }
  element.replaceChildren(...pieces, text.slice(end));
}
