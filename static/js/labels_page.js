// The page of labels: its images, its classes, and the proposals of models.

import './activities.js';
import { toast } from './dialog.js';
import { request, wordsOf } from './http.js';
import { startJobPage } from './job_page.js';

startJobPage();

document.getElementById('labels-classes').addEventListener('submit', async (event) => {
  event.preventDefault();
  const { currentTarget, target: form } = event;
  const { id } = form.dataset;
  const body = JSON.stringify({ ...(id && { id: Number(id) }), ...Object.fromEntries(new FormData(form)) });
  try {
    await request(currentTarget.dataset.url, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
    location.reload();
  } catch (error) {
    toast(wordsOf(error), 'danger');
  }
});
