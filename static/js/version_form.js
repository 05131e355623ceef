// The form for a new version: applies the changes made in Explore.

import { describeEdits, RecordEdits } from './record_edits.js';

const form = document.getElementById('version-form');
const field = document.getElementById('edits');
const pending = new RecordEdits(form.dataset.parent);
const given = field.value ? JSON.parse(field.value) : null;
const edits = given && describeEdits(given) ? given : pending.toJSON();
const words = describeEdits(edits);
if (words) {
  field.value = JSON.stringify(edits);
  document.getElementById('changes').textContent = `${words}.`;
}
form.addEventListener('submit', () => {
  form.querySelector('[type="submit"]').setAttribute('aria-busy', 'true');
  pending.clear();
});
