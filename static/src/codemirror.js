export {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder,
  rectangularSelection,
} from '@codemirror/view';
export { Compartment, EditorState, Prec } from '@codemirror/state';
export {
  HighlightStyle,
  bracketMatching,
  foldGutter,
  foldKeymap,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language';
export { defaultKeymap, history, historyKeymap, indentWithTab, redo, undo } from '@codemirror/commands';
export {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completeFromList,
  completionKeymap,
} from '@codemirror/autocomplete';
export { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
export { forceLinting, lintGutter, lintKeymap, linter, setDiagnostics } from '@codemirror/lint';
export { python, pythonLanguage } from '@codemirror/lang-python';
export { tags } from '@lezer/highlight';
