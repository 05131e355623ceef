// The page of labels: its images, its classes, and the proposals of models.

import { toast } from './dialog.js';
import { request, wordsOf } from './http.js';
import { startJobPage } from './job_page.js';
import { join } from './live.js';
import { refreshParts } from './refresh.js';

startJobPage();

// The model on which the next step depends.
const watch = () => document.getElementById('labels-next')?.dataset.watch;
const follow = () => watch() && join(watch());
follow();
document.addEventListener('parts-refreshed', follow);
document.addEventListener('job-update', ({ detail }) => detail.job_id === watch() && detail.update === 'status' && refreshParts());

// Classes

const panel = document.getElementById('labels-classes');
const dialog = document.getElementById('class-dialog');
const form = dialog.querySelector('form');

async function change(fields) {
  try {
    await request(form.action, { method: 'POST', body: JSON.stringify(fields), headers: { 'Content-Type': 'application/json' } });
    await refreshParts();
    return true;
  } catch (error) {
    toast(wordsOf(error), 'danger');
    return false;
  }
}

panel.addEventListener('click', ({ target }) => {
  const { change: values, images, isKept, restore } = target.closest('button')?.dataset ?? {};
  if (restore) change({ id: Number(restore), is_deleted: false });
  if (!values) return;
  for (const [name, value] of Object.entries(JSON.parse(values))) if (form.elements[name]) form.elements[name].value = value;
  form.querySelector('[data-deletion]').hidden = isKept !== undefined;
  for (const words of form.querySelectorAll('[data-images]')) words.textContent = images;
  dialog.showPopover();
});
for (const each of [form, panel.querySelector('form')]) {
  each.addEventListener('submit', async (event) => {
    event.preventDefault();
    const { csrf_token: token, id, ...fields } = Object.fromEntries(new FormData(each));
    if (!(await change({ ...fields, ...(id && { id: Number(id) }) }))) return;
    if (each === form) dialog.hidePopover();
    else each.reset();
  });
}
form.querySelector('[data-delete]').addEventListener('click', async () => {
  if (await change({ id: Number(form.elements.id.value), is_deleted: true })) dialog.hidePopover();
});
