// The form for a new version: describes the pending changes that it contains.

import { describeEdits } from './record_edits.js';

const form = document.getElementById('version-form');
const { value } = document.getElementById('edits');
const words = value && describeEdits(JSON.parse(value));
if (words) document.getElementById('changes').textContent = `${words}.`;
form.addEventListener('submit', () => form.querySelector('[type="submit"]').setAttribute('aria-busy', 'true'));
