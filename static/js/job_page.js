// Shared by the pages of all jobs: live status and progress, name and group, notes, warnings, output.

import './activities.js';
import { suggestGroups } from './group_suggestions.js';
import { formData, request } from './http.js';
import { join } from './live.js';
import { startLogTail } from './log_tail.js';
import { startNotes } from './notes.js';
import { setProgress } from './progress.js';
import { refreshParts, refreshSoon } from './refresh.js';
import { toast } from './dialog.js';

/** Initializes the page. Returns its job: {id, url}. */
export function startJobPage() {
  const head = document.querySelector('.job-head');
  const job = { id: head.dataset.job, url: head.dataset.url };
  document.addEventListener('job-update', ({ detail }) => detail.job_id === job.id && JOB_UPDATES[detail.update]?.(detail));
  document.addEventListener('task-update', ({ detail }) => detail.job_id === job.id && TASK_UPDATES[detail.update]?.(detail));
  document.addEventListener('page-gone', showDeleted);
  startEditing(job);
  startNotes(job);
  startLogTail(document.getElementById('log-panel'));
  join(job.id);
  return job;
}

const JOB_UPDATES = {
  status: refreshParts,
  progress(message) {
    setProgress(document.querySelector('#job-status [data-meter]'), message.percentage, message.eta_seconds);
  },
  attribute(message) {
    // Other parts of the page show the status too.
    if (message.attribute !== 'notes') refreshParts();
    else document.dispatchEvent(new CustomEvent('notes-changed', { detail: message.value ?? '' }));
  },
  size: () => refreshSoon(),
  deleted: () => showDeleted(),
};

function showDeleted() {
  toast('This job was deleted.', 'warning', 60);
  for (const button of document.querySelectorAll('#job-actions .button, [data-edit]')) button.hidden = true;
}

const TASK_UPDATES = {
  progress(message) {
    const doing = document.querySelector('[data-doing]');
    if (doing) doing.textContent = message.doing ?? '';
    const row = document.querySelector(`[data-task="${CSS.escape(message.task)}"] [data-meter]`);
    setProgress(row, message.percentage, message.eta_seconds);
  },
  warned: () => refreshSoon(),
};

function startEditing(job) {
  const title = document.querySelector('.job-names'); // Not a refreshed part, so it stays unchanged while editing.
  const button = document.querySelector('[data-edit]');
  const form = document.getElementById('names-form');
  const { job_name: name, group_name: group } = form.elements;
  suggestGroups(group);

  const show = (editing) => {
    form.hidden = !editing;
    button.hidden = editing;
    title.classList.toggle('visually-hidden', editing); // The page keeps its heading.
    if (editing) name.select();
    else button.focus();
  };
  button.addEventListener('click', () => {
    name.value = document.getElementById('job-name').textContent;
    group.value = document.getElementById('job-group').textContent;
    show(true);
  });
  form.querySelector('[data-cancel]').addEventListener('click', () => show(false));
  form.addEventListener('keydown', (event) => event.key === 'Escape' && show(false));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (!(await save(job, { job_name: name.value, group_name: group.value }))) return;
    await refreshParts();
    document.title = `${name.value.trim()} · DIGITS`;
    show(false);
  });
}

async function save(job, fields) {
  try {
    await request(job.url, { method: 'PUT', body: formData(fields) });
    return true;
  } catch (error) {
    toast(error.message, 'danger');
    return false;
  }
}
