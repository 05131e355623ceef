// The confirmation dialog and the notifications in the corner. Both isolate the direction of names in “quotes”.

import { element } from './element.js';
import { wordsOf } from './http.js';
import { isolateQuoted } from './names.js';

/**
  * Asks for confirmation of an irreversible action. `action` runs while the dialog is open; its error is shown there.
  * Resolves to whether the action succeeded.
 */
export function confirmed({ title, text, yes, keep = 'Cancel', action }) {
  const dialog = document.getElementById('confirm-dialog');
  const button = dialog.querySelector('#confirm-yes');
  const refusal = dialog.querySelector('#confirm-refusal');
  dialog.querySelector('#confirm-title').replaceChildren(isolateQuoted(title));
  dialog.querySelector('#confirm-text').replaceChildren(isolateQuoted(text));
  dialog.querySelector('[value="cancel"]').textContent = keep;
  button.textContent = yes;
  button.disabled = false;
  refusal.hidden = true;

  return new Promise((resolve) => {
    let done = false;
    button.onclick = async () => {
      button.disabled = true;
      button.setAttribute('aria-busy', 'true');
      try {
        await action();
        done = true;
        dialog.close();
      } catch (error) {
        refusal.hidden = false;
        refusal.querySelector('p').replaceChildren(isolateQuoted(wordsOf(error)));
        button.disabled = false;
      } finally {
        button.removeAttribute('aria-busy');
      }
    };
    dialog.onclose = () => resolve(done);
    dialog.showModal();
  });
}

/** A message that disappears automatically. `tone` is info, success, warning or danger. */
export function toast(message, tone = 'success', seconds = 6) {
  const box = element('div', `toast tone-${tone}`, isolateQuoted(message));
  document.getElementById('toasts').append(box);
  setTimeout(() => box.remove(), seconds * 1000);
}
