// The form for a new version, which the server fills in (answered_form.js).

import { startAnsweredForm } from './answered_form.js';
import { startUploadFields } from './upload_field.js';

const form = document.getElementById('version-form');
const button = form.querySelector('[type="submit"]');
startAnsweredForm(form, { problem: (words) => (document.getElementById('create-status').textContent = words) });
startUploadFields(form);
form.addEventListener('submit', (event) => {
  if (button.hasAttribute('aria-disabled')) return event.preventDefault();
  button.setAttribute('aria-busy', 'true');
});
