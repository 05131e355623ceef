// What the pages of all jobs share: status and progress as they change, renaming, notes, warnings, output.

import { formData, request } from './http.js';
import { join } from './live.js';
import { startLogTail } from './log_tail.js';
import { startNotes } from './notes.js';
import { setProgress } from './progress.js';
import { refreshParts } from './refresh.js';
import { toast } from './dialog.js';

/** Brings the page to life. Answers what it is about: {id, kind, url}. */
export function startJobPage() {
  const head = document.querySelector('.job-head');
  const job = { id: head.dataset.job, kind: head.dataset.kind, url: head.dataset.url };
  document.addEventListener('job-update', ({ detail }) => detail.job_id === job.id && JOB_UPDATES[detail.update]?.(detail));
  document.addEventListener('task-update', ({ detail }) => detail.job_id === job.id && TASK_UPDATES[detail.update]?.(detail));
  startCatchingUp(job);
  startRenaming(job);
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
    if (message.attribute === 'name') document.getElementById('job-name').textContent = message.value;
    if (message.attribute === 'notes') document.dispatchEvent(new CustomEvent('notes-changed', { detail: message.value ?? '' }));
  },
  deleted() {
    toast('This job was deleted.', 'warning', 60);
    for (const button of document.querySelectorAll('#job-actions .button, [data-rename]')) button.hidden = true;
  },
};

const TASK_UPDATES = {
  progress(message) {
    const doing = document.querySelector('[data-doing]');
    if (doing) doing.textContent = message.doing ?? '';
    const row = document.querySelector(`[data-task="${CSS.escape(message.task)}"] [data-meter]`);
    setProgress(row, message.percentage, message.eta_seconds);
  },
  warned(message) {
    showWarnings(message.messages ?? [message.message]);
  },
};

function showWarnings(messages) {
  const box = document.getElementById('job-warnings');
  box.replaceChildren(
    ...messages.map((text) => {
      const notice = document.createElement('div');
      notice.className = 'notice tone-warning';
      const body = document.createElement('div');
      body.className = 'notice-body';
      body.textContent = text;
      notice.append(body);
      return notice;
    }),
  );
}

// What happened before the room was entered, or while the connection was lost, is seen by fetching the page's parts again.
function startCatchingUp(job) {
  let settled = document.getElementById('job-status').dataset.running === 'false';
  document.addEventListener('live-joined', ({ detail }) => {
    if (detail.room !== job.id) return;
    if (!settled) refreshParts();
    settled = false;
  });
}

function startRenaming(job) {
  const title = document.getElementById('job-name');
  const form = document.getElementById('rename-form');
  const button = document.querySelector('[data-rename]');
  const input = form.elements.job_name;

  const show = (editing) => {
    form.hidden = !editing;
    title.hidden = button.hidden = editing;
    if (editing) input.select();
    else button.focus();
  };
  button.addEventListener('click', () => {
    input.value = title.textContent;
    show(true);
  });
  form.querySelector('[data-cancel]').addEventListener('click', () => show(false));
  form.addEventListener('keydown', (event) => event.key === 'Escape' && show(false));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (await save(job, { job_name: input.value.trim() })) {
      title.textContent = input.value.trim();
      document.title = `${title.textContent} · DIGITS`;
      show(false);
    }
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
