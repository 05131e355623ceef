// Controls of the views of predictions: sliders, whose values are kept in the browser, switches of classes, and frames.

import { countOf } from './format.js';
import { drawSegments, highlight } from './segmentation_view.js';
import { store, stored } from './storage.js';

const ROOTS = '[data-boxes], [data-segmentation]';
const key = (root) => (root.matches('[data-boxes]') ? 'view:boxes' : 'view:segmentation');

/** Handles the controls of all views in `root`, including those that are inserted later, for which call `applyViewSettings`. */
export function startViewSettings(root) {
  root.addEventListener('input', ({ target }) => {
    const view = target.closest(ROOTS);
    if (view && target.matches('[data-sliders] input')) {
      store('localStorage', key(view), values(view));
      apply(view);
    } else if (view && target.matches('[data-shows]')) apply(view);
    else if (target.matches('[data-frame]')) showFrame(target);
  });
  root.addEventListener('click', ({ target }) => {
    const view = target.closest(ROOTS);
    const reset = target.closest('[data-reset]');
    if (reset && view) {
      for (const slider of sliders(view)) slider.value = slider.defaultValue;
      store('localStorage', key(view), values(view));
      apply(view);
    }
    const button = target.closest('[data-highlight]');
    if (button && view) highlight(view, button, true);
  });
  for (const [name, isOn] of [
    ['pointerover', true],
    ['focusin', true],
    ['pointerout', false],
    ['focusout', false],
  ]) {
    root.addEventListener(name, ({ target }) => {
      const button = target.closest?.('[data-highlight]');
      if (button) highlight(button.closest(ROOTS), isOn ? button : null);
    });
  }
  applyViewSettings(root);
}

/** Shows the controls of the views in `root` with the settings of this browser. */
export function applyViewSettings(root) {
  for (const view of root.querySelectorAll(ROOTS)) {
    const known = stored('localStorage', key(view)) ?? {};
    for (const slider of sliders(view)) if (slider.name in known) slider.value = known[slider.name];
    for (const controls of view.querySelectorAll('[data-sliders]')) controls.hidden = false;
    apply(view);
  }
  for (const slider of root.querySelectorAll('[data-frame]')) slider.closest('label').hidden = false;
}

const sliders = (view) => [...view.querySelectorAll('[data-sliders] input')];
const values = (view) => ({ ...stored('localStorage', key(view)), ...Object.fromEntries(sliders(view).map(({ name, value }) => [name, Number(value)])) });

function apply(view) {
  for (const slider of sliders(view)) {
    const words = `${slider.value}${slider.dataset.unit}`;
    slider.setAttribute('aria-valuetext', words);
    slider.nextElementSibling.textContent = words;
  }
  const settings = Object.fromEntries(sliders(view).map(({ name, value }) => [name, Number(value)]));
  if (view.matches('[data-segmentation]')) drawSegments(view, settings);
  else applyBoxes(view, settings);
}

function applyBoxes(view, { confidence = 0, line = 2, opacity = 100, desaturation = 0 }) {
  const picture = view.querySelector('.drawn');
  picture.style.setProperty('--line', `${line}px`);
  picture.style.setProperty('--box-opacity', opacity / 100);
  picture.style.setProperty('--desaturation', desaturation / 100);
  const shown = new Map();
  const boxes = [...view.querySelectorAll('[data-confidence]')];
  for (const box of boxes) {
    const isOn = view.querySelector(`[data-shows="${box.dataset.class}"]`).checked && 100 * box.dataset.confidence >= confidence;
    box.hidden = !isOn;
    if (100 * box.dataset.confidence >= confidence) shown.set(box.dataset.class, (shown.get(box.dataset.class) ?? 0) + 1);
  }
  for (const checkbox of view.querySelectorAll('[data-shows]')) {
    checkbox.closest('label').querySelector('[data-class-total]').textContent = shown.get(checkbox.dataset.shows) ?? 0;
  }
  const count = boxes.filter(({ hidden }) => !hidden).length;
  view.querySelector('[data-total]').textContent = `${count} of ${countOf(boxes.length, 'object')} shown`;
}

/** Shows one image of an animation; the first position of the slider plays it. */
function showFrame(slider) {
  const figure = slider.closest('[data-frames]');
  const frames = JSON.parse(figure.querySelector('script').textContent);
  const image = figure.querySelector('[data-animation]');
  const words = slider.value === '0' ? 'Play' : `${slider.value} of ${frames.length}`;
  figure.dataset.animation ??= image.src;
  image.src = slider.value === '0' ? figure.dataset.animation : frames[slider.value - 1];
  slider.setAttribute('aria-valuetext', words);
  slider.nextElementSibling.textContent = words;
}
