// The form that starts labels. Their name is suggested by the folder.

import { startCreatingJob } from './create_job.js';
import { startFormMemory } from './form_memory.js';
import { startUploadFields } from './upload_field.js';

const form = document.getElementById('labels-form');
const { name, folder, kind } = form.elements;
const memory = startFormMemory(form);
startUploadFields(form);
const { send } = startCreatingJob(form, { memory });

function showOnlyThoseOfKind() {
  for (const part of form.querySelectorAll('[data-of]')) {
    part.hidden = part.dataset.of !== kind.value;
    for (const control of part.querySelectorAll('input')) control.disabled = part.hidden;
  }
}
kind.addEventListener('change', showOnlyThoseOfKind);
showOnlyThoseOfKind();

let isOwn = Boolean(name.value);
name.addEventListener('input', () => (isOwn = Boolean(name.value)));
for (const type of ['input', 'change']) {
  folder.addEventListener(type, () => isOwn || (name.value = folder.value.split('/').filter(Boolean).at(-1) ?? ''));
}
form.addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
