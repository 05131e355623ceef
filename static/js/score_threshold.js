// Hides detected objects whose score is below the value of a slider, on the image and in the list.

/** Handles the sliders of all predictions in `root`, including those that are inserted later. */
export function startThresholds(root) {
  root.addEventListener('input', ({ target }) => {
    if (target.matches('[data-threshold]')) applyThreshold(target);
  });
}

function applyThreshold(slider) {
  const detections = slider.closest('[data-detections]');
  const words = `${slider.value}%`;
  slider.setAttribute('aria-valuetext', words);
  detections.querySelector('[data-threshold-text]').textContent = words;
  for (const item of detections.querySelectorAll('[data-score]')) item.hidden = 100 * item.dataset.score < slider.valueAsNumber;
  const items = detections.querySelectorAll('li[data-score]');
  const shown = [...items].filter(({ hidden }) => !hidden).length;
  const hint = detections.querySelector('[data-hint]');
  if (hint) hint.hidden = shown > 0;
  detections.querySelector('[data-count]').textContent = `${shown} of ${items.length} detections shown`;
}
