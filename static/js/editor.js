// A code editor over a textarea. The textarea remains the source of truth, which the form submits.

import {
  Compartment, EditorState, EditorView, HighlightStyle, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap,
  completionKeymap, defaultKeymap, drawSelection, foldGutter, foldKeymap, highlightActiveLine, highlightActiveLineGutter,
  highlightSelectionMatches, highlightSpecialChars, history, historyKeymap, indentOnInput, indentUnit, indentWithTab, keymap,
  lineNumbers, lintGutter, lintKeymap, python, rectangularSelection, search, searchKeymap, setDiagnostics, syntaxHighlighting, tags,
} from '../vendor/codemirror.js';
import { settled } from './settled.js';
import { button, element } from './element.js';
import { postForm, urlPrefix } from './http.js';

const LINT_MILLISECONDS = 500;
const LONGEST_PROBLEM = 160;

// Colors are tokens of tokens.css, so that one style serves both themes.
const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword, tags.definitionKeyword, tags.moduleKeyword], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--code-number)' },
  { tag: tags.comment, color: 'var(--code-comment)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.definition(tags.variableName)), tags.meta], color: 'var(--code-function)' },
  { tag: [tags.className, tags.definition(tags.className), tags.typeName], color: 'var(--code-type)' },
]);

const look = {
  '&': { backgroundColor: 'var(--surface)', color: 'var(--code-plain)', fontSize: '0.8125rem' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--font-code)', lineHeight: '1.6', minHeight: '20rem', maxHeight: '36rem', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--ink)', padding: '0.5rem 0' },
  '.cm-gutters': { backgroundColor: 'var(--surface-sunken)', color: 'var(--ink-faint)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--accent) 8%, transparent)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'color-mix(in srgb, var(--focus) 28%, transparent)' },
  '.cm-tooltip, .cm-panels': { backgroundColor: 'var(--surface-raised)', color: 'var(--ink)', borderColor: 'var(--line-strong)' },
  '.cm-diagnostic': { fontFamily: 'var(--font-text)', padding: '0.25rem 0.5rem' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--danger-solid)', textUnderlineOffset: '3px' },
  '.cm-foldPlaceholder': { backgroundColor: 'transparent', border: 'none', color: 'var(--ink-faint)' },
};

/**
  * Mounts an editor beside `textarea`. Returns {text, setText, mark, focus}:
  * `mark(line, message)` shows an error from elsewhere until the text changes.
 */
export function mountEditor(textarea, problems) {
  const theme = new Compartment();
  const isDark = () => document.documentElement.dataset.theme === 'dark';
  const themed = () => EditorView.theme(look, { dark: isDark() });
  let version = 0;
  let marked = [];

  const view = new EditorView({
    parent: textarea.parentElement,
    state: EditorState.create({
      doc: textarea.value,
      extensions: [
        EditorView.cspNonce.of(document.querySelector('meta[name="csp-nonce"]')?.content ?? ''),
        lineNumbers(), highlightActiveLineGutter(), foldGutter(), lintGutter(), highlightSpecialChars(), history(), drawSelection(),
        EditorState.allowMultipleSelections.of(true), rectangularSelection(), indentOnInput(), indentUnit.of('    '),
        EditorState.tabSize.of(4), bracketMatching(), closeBrackets(), autocompletion(), highlightActiveLine(), highlightSelectionMatches(),
        search({ top: true }), python(), syntaxHighlighting(colors), theme.of(themed()),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
        EditorView.contentAttributes.of({
          'aria-label': 'Network definition (Python)',
          'aria-describedby': 'editor-help editor-problems',
          tabindex: '0',
        }),
        EditorView.updateListener.of((update) => update.docChanged && changed()),
      ],
    }),
  });
  textarea.parentElement.classList.add('mounted');
  document.addEventListener('theme-changed', () => view.dispatch({ effects: theme.reconfigure(themed()) }));

  function changed() {
    version += 1;
    marked = [];
    textarea.value = view.state.doc.toString();
    textarea.removeAttribute('aria-invalid');
    document.getElementById(`${textarea.id}-error`)?.remove();
    textarea.dispatchEvent(new Event('input', { bubbles: true }));
    lintSoon();
  }

  async function lint() {
    const asked = version;
    try {
      const { diagnostics } = await postForm(`${urlPrefix}/models/lint`, { custom_network: textarea.value });
      if (asked === version) show(diagnostics.map((item) => ({ ...item, message: `${item.message} ${item.hint}`.trim() })));
    } catch {
      // Checking while typing is optional; Visualize and Create check again.
    }
  }

  const lintSoon = settled(lint, LINT_MILLISECONDS);

  function show(diagnostics) {
    const all = [...marked, ...diagnostics];
    view.dispatch(setDiagnostics(view.state, all.map(place)));
    problems.replaceChildren(...all.map((item) => problem(item, () => goTo(item))));
    // Do not repeat the server's errors for the whole form.
    if (all.length) document.getElementById(`${textarea.id}-error`)?.remove();
  }

  function place({ line, column = 0, message, severity = 'error' }) {
    const found = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
    const from = Math.min(found.to, found.from + (column || indentOf(found.text)));
    return { from, to: Math.max(from, found.to), severity, message };
  }

  function goTo(item) {
    const { from } = place(item);
    view.dispatch({ selection: { anchor: from }, effects: EditorView.scrollIntoView(from, { y: 'center' }) });
    view.focus();
  }

  if (textarea.value.trim()) lint();

  return {
    text: () => view.state.doc.toString(),
    setText: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 } }),
    focus: () => view.focus(),
    mark(line, message) {
      version += 1;
      marked = [{ line, message }];
      show([]);
      const { from } = place(marked[0]);
      view.dispatch({ effects: EditorView.scrollIntoView(from, { y: 'center' }) });
    },
  };
}

const indentOf = (text) => text.length - text.trimStart().length;

function problem({ line, message }, go) {
  const short = message.length > LONGEST_PROBLEM ? `${message.slice(0, LONGEST_PROBLEM)}…` : message;
  return element('li', '', button('text-button', `Line ${line}: ${short}`, go));
}
