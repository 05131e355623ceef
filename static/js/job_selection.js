// The jobs chosen in lists, and what can be done with all of them: compare, group, abort, delete.

import { confirmed, toast } from './dialog.js';
import { countOf } from './format.js';
import { suggestGroups } from './group_suggestions.js';
import { requestForJobs, wordsOf } from './http.js';
import { isolateQuoted } from './names.js';

const MOST_NAMED = 5;

/** Starts the selection of jobs in `box`. Call `show` after its rows have changed, and `forget` after a job was deleted. */
export function startSelection(box) {
  // The jobs by id. They stay chosen while the lists are updated, searched or turned to other pages.
  const chosen = new Map();
  const bar = document.getElementById('selection');
  const compare = bar.querySelector('#compare-form button');
  const most = Number(compare.form.dataset.most);

  const of = (test) => [...chosen.values()].filter(test);
  const running = () => of((job) => job.running);
  const models = () => of((job) => job.type === 'model');

  function choose(input) {
    const { type, name, running } = input.dataset;
    if (input.checked) chosen.set(input.value, { id: input.value, type, name, running: running !== undefined });
    else chosen.delete(input.value);
  }

  function show() {
    for (const input of box.querySelectorAll('[data-choice]')) {
      input.checked = chosen.has(input.value);
      choose(input); // its status may have changed
    }
    for (const all of box.querySelectorAll('[data-choose-all]')) {
      const inputs = choicesBeside(all);
      const count = inputs.filter((input) => input.checked).length;
      all.checked = count > 0 && count === inputs.length;
      all.indeterminate = count > 0 && count < inputs.length;
    }
    showBar();
  }

  function showBar() {
    if (!chosen.size && bar.contains(document.activeElement)) document.getElementById('main').focus({ preventScroll: true });
    bar.hidden = !chosen.size;
    bar.querySelector('[data-count]').textContent = `${chosen.size} selected`;
    const count = models().length;
    compare.disabled = count < 2 || count > most;
    compare.textContent = compare.disabled ? 'Compare' : `Compare ${count}`;
    compare.title = compare.disabled ? `Select 2 to ${most} models` : '';
    const abort = bar.querySelector('[data-bulk="abort"]');
    abort.hidden = !running().length;
    abort.textContent = `Abort ${running().length}`;
  }

  box.addEventListener('change', ({ target }) => {
    if (target.matches('[data-choice]')) choose(target);
    else if (target.matches('[data-choose-all]')) {
      for (const input of choicesBeside(target)) {
        input.checked = target.checked;
        choose(input);
      }
    } else return;
    show();
  });

  bar.addEventListener('submit', (event) => {
    event.preventDefault();
    location.assign(`${event.target.action}?ids=${models().map(({ id }) => id).join(',')}`);
  });
  bar.addEventListener('click', ({ target }) => ACTIONS[target.closest('[data-bulk]')?.dataset.bulk]?.());

  const ACTIONS = {
    clear() {
      chosen.clear();
      show();
    },
    abort: () =>
      act(running, {
        title: (jobs) => `Abort ${counted(jobs)}?`,
        text: (jobs) => `${named(jobs)}: processes stop immediately. Files written so far are kept.`,
        yes: 'Abort',
        keep: 'Keep running',
        url: '/abort_jobs',
        method: 'POST',
        said: (jobs) => `Aborting ${counted(jobs)}.`,
      }),
    delete: () =>
      act(() => of(() => true), {
        title: (jobs) => `Delete ${counted(jobs)}?`,
        text: (jobs) =>
          `${named(jobs)}: their folders and all files in them are permanently deleted.${jobs.some((job) => job.running) ? ' Running jobs are aborted first.' : ''}`,
        yes: 'Delete',
        url: '/jobs',
        method: 'DELETE',
        said: (jobs) => `Deleted ${counted(jobs)}.`,
      }),
    group: () => openGroupDialog([...chosen.values()], changed),
  };

  async function act(choice, { title, text, yes, keep, url, method, said }) {
    const jobs = choice();
    const action = async () => {
      try {
        await send(url, method, choice()); // some may have been deleted by an attempt that failed for others
      } finally {
        changed();
      }
    };
    if (await confirmed({ title: title(jobs), text: text(jobs), yes, keep, action })) {
      toast(said(jobs));
      if (method === 'DELETE') for (const { id } of jobs) chosen.delete(id);
      show();
    }
  }

  const changed = () => document.dispatchEvent(new CustomEvent('job-action'));
  suggestGroups(document.getElementById('group-input'));
  for (const input of box.querySelectorAll('[data-choice]:checked')) choose(input); // kept by the browser
  show();
  return { show, forget: (id) => chosen.delete(id) };
}

const choicesBeside = (all) => [...all.closest('section').querySelectorAll('[data-choice]')];
const counted = ({ length }) => countOf(length, 'job');

function named(jobs) {
  const names = jobs.slice(0, MOST_NAMED).map(({ name }) => `“${name}”`);
  const more = jobs.length - names.length;
  return new Intl.ListFormat('en').format([...names, ...(more ? [`${more} more`] : [])]);
}

const send = (path, method, jobs, fields) => requestForJobs(path, method, jobs.map(({ id }) => id), fields);

function openGroupDialog(jobs, changed) {
  const dialog = document.getElementById('group-dialog');
  const { group_name: input } = dialog.querySelector('form').elements;
  const refusal = dialog.querySelector('[data-refusal]');
  dialog.querySelector('h2').textContent = `Group ${counted(jobs)}`;
  input.value = '';
  refusal.hidden = true;
  dialog.querySelector('[data-cancel]').onclick = () => dialog.close();
  dialog.querySelector('form').onsubmit = async (event) => {
    event.preventDefault();
    const group = input.value.trim();
    try {
      await send('/group', 'POST', jobs, { group_name: group });
      dialog.close();
      toast(group ? `Moved ${counted(jobs)} to the group “${group}”.` : `Removed ${counted(jobs)} from their groups.`);
    } catch (error) {
      refusal.hidden = false;
      refusal.querySelector('p').replaceChildren(isolateQuoted(wordsOf(error)));
    }
    changed();
  };
  dialog.showModal();
}
