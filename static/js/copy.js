// Buttons with data-copy copy that text to the clipboard.

import { toast } from './dialog.js';

export function startCopying() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('[data-copy]');
    if (!button) return;
    const copied = await copy(button.dataset.copy);
    toast(copied ? 'Copied.' : 'This browser blocks access to the clipboard.', copied ? 'success' : 'warning', 3);
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

// Without HTTPS, the clipboard API is available on localhost only.
function copyBySelection(text) {
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  return copied;
}
