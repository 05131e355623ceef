// The prediction panels: choose, drop or paste an image, enter its path, or fill in the kind's own fields to get a
// prediction.

import { startCamera } from './camera.js';
import { droppedFiles, startDropping } from './dropped_files.js';
import { postForm } from './http.js';
import { startImageChoice, startPreview } from './image_choice.js';
import { fragment, swapping } from './swap.js';
import { errorBox } from './error_box.js';
import { applyViewSettings } from './view_settings.js';

// Stands for the input in the fields of the kind.
const FIELDS = Symbol('fields');

/** Initializes `panel`. The server selects the best snapshot until the user chooses another. */
export function startClassifying(panel) {
  const form = panel.querySelector('form');
  const { image_file: file, image_path: path, snapshot_epoch: snapshot, view_extension_id: view } = form.elements;
  const drop = panel.querySelector('#drop');
  const image = panel.querySelector('#classify-image');
  const showImage = image && startPreview(image);
  const result = panel.querySelector('.predictions');
  const time = panel.querySelector('.panel-head [role="status"]');
  const own = panel.querySelector('.own-input');
  // A view of the last prediction can be shown without predicting again.
  let recent = '';
  let chosen = null;

  const isChoice = view?.tagName === 'SELECT';
  const optionFields = [...panel.querySelectorAll('[data-view-options]')];

  const swap = swapping(result, (error) => {
    time.textContent = '';
    result.replaceChildren(errorBox(error));
  });

  // The server draws the prediction, because that depends on the kind of the model.
  const classify = (given) => draw(panel.dataset.url, { method: 'POST', body: fields(given) });
  const switchView = () => draw(`${recent}?${new URLSearchParams(viewFields())}`);

  function draw(url, options) {
    time.textContent = 'Running…';
    swap((signal) => fragment(url, { ...options, signal, headers: { 'X-Fragment': 'prediction' } }), show);
  }

  function show(drawn) {
    const note = drawn.querySelector('[data-note]');
    note.remove();
    recent = note.dataset.recent ?? '';
    if (isChoice && note.dataset.views !== undefined) offerViews(note.dataset.views.split(' '));
    for (const control of drawn.querySelectorAll('[data-opacity]')) control.hidden = false;
    result.replaceChildren(drawn);
    applyViewSettings(result);
    time.textContent = note.textContent;
  }

  /** Only the views that can show the last prediction can be chosen. */
  function offerViews(names) {
    for (const option of view.options) option.disabled = option.value !== '' && !names.includes(option.value);
  }

  function showOptions() {
    for (const fieldset of optionFields) {
      fieldset.hidden = fieldset.dataset.viewOptions !== view.value;
      fieldset.disabled = fieldset.hidden;
    }
  }

  /** The view and its options, by the names of their fields. */
  function viewFields() {
    const names = ['view_extension_id', ...optionFields.filter(({ disabled }) => !disabled).flatMap((fieldset) => [...fieldset.elements].map(({ name }) => name))];
    return [...new FormData(form)].filter(([name, value]) => names.includes(name) && value !== '');
  }

  function fields(given) {
    if (given === FIELDS) {
      const all = new FormData(form);
      for (const name of ['image_file', 'image_path']) all.delete(name);
      return all;
    }
    const data = new FormData();
    data.set('job_id', form.elements.job_id.value);
    if (snapshot.value) data.set('snapshot_epoch', snapshot.value);
    for (const [name, value] of viewFields()) data.set(name, value);
    if (given instanceof File) data.set('image_file', given);
    else if (given.record) data.set('record', given.record);
    else data.set('image_path', given);
    return data;
  }

  let last = null;
  function take(given) {
    last = given;
    recent = '';
    if (typeof given === 'object') path.value = '';
    showImage?.(addressOf(given));
    classify(given);
  }

  /** Predicts from one image here, and from several on a page of their own. */
  function takeFiles(files) {
    if (files.length > 1) predictMany(files);
    else if (files.length) take(files[0]);
  }

  function predictMany(files) {
    const data = new FormData();
    if (snapshot.value) data.set('snapshot_epoch', snapshot.value);
    for (const given of files) data.append('image_files', given);
    time.textContent = `Uploading ${files.length} images…`;
    swap(
      (signal) => postForm(panel.dataset.manyUrl, data, { signal }),
      ({ url }) => window.location.assign(url),
    );
  }

  function addressOf(given) {
    if (given === FIELDS) return '';
    return given.url ?? (given instanceof File ? URL.createObjectURL(given) : `${panel.dataset.imageUrl}?${new URLSearchParams({ path: given })}`);
  }

  file?.addEventListener('change', () => takeFiles([...file.files]));
  // The images appear when the dataset is finished.
  panel.addEventListener('click', ({ target }) => {
    const button = target.closest?.('[data-record]');
    if (button) take({ record: button.dataset.record, url: button.querySelector('img').src });
  });
  startCamera(panel.querySelector('#use-camera'), file);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    // The Enter key submits with the first button, also from the path.
    const asksForFields = own && (!path || (document.activeElement !== path && own.contains(event.submitter)));
    const given = asksForFields ? FIELDS : path.value.trim() || last;
    if (given) take(given);
    else file?.click();
  });
  snapshot.addEventListener('change', () => {
    chosen = snapshot.value;
    recent = '';
    if (last) classify(last);
  });

  result.addEventListener('input', ({ target }) => {
    if (target.closest('[data-opacity]')) result.style.setProperty('--opacity', target.value / 100);
  });

  function changeView() {
    if (recent) switchView();
    else if (last) classify(last);
  }
  if (isChoice) {
    view.addEventListener('change', () => {
      showOptions();
      changeView();
    });
    for (const fieldset of optionFields) fieldset.addEventListener('change', changeView);
    showOptions();
  }

  if (drop) {
    startDropping(panel, drop, async (dropped) => {
      const files = (await droppedFiles(dropped)).map((item) => item.file);
      takeFiles(files.filter(({ name }) => !name.startsWith('.')));
    });
    document.addEventListener('paste', (event) => {
      takeFiles([...(event.clipboardData?.files ?? [])].filter(({ type }) => type.startsWith('image/')));
    });
  }

  for (const choice of panel.querySelectorAll('[data-image-choice]')) startImageChoice(choice, panel.dataset.imageUrl);

  document.addEventListener('parts-refreshed', () => {
    // A refresh selects the default again.
    if ([...snapshot.options].some(({ value }) => value === chosen)) snapshot.value = chosen;
  });
}
