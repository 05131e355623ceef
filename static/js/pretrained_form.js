// The form that imports a model. The import takes a few seconds, during which its button is busy.

import { startCreatingJob } from './create_job.js';
import { startFormMemory } from './form_memory.js';
import { startUploadFields } from './upload_field.js';

const form = document.getElementById('pretrained-form');
const memory = startFormMemory(form);
startUploadFields(form);
const job = startCreatingJob(form, { memory, doing: 'Importing…' });
form.addEventListener('submit', (event) => {
  event.preventDefault();
  job.send();
});
