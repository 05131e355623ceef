// The page of labels: its images, and its classes, which can be added.

import { toast } from './dialog.js';
import { request, wordsOf } from './http.js';
import { startJobPage } from './job_page.js';

startJobPage();

document.getElementById('labels-class-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const { url } = document.getElementById('labels-classes').dataset;
  const body = JSON.stringify({ name: event.target.elements.name.value });
  try {
    await request(url, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
    location.reload();
  } catch (error) {
    toast(wordsOf(error), 'danger');
  }
});
