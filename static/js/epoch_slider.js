// A slider that shows one epoch at a time of parts with `data-epoch`.

/** Starts the slider in `area`, at its last epoch, or at `epoch` if there is such a part. */
export function startEpochSlider(area, epoch = '') {
  const slider = area.querySelector('input[type="range"]');
  const parts = [...area.querySelectorAll('[data-epoch]')];
  const move = () => {
    for (const [place, part] of parts.entries()) part.hidden = place !== Number(slider.value);
    area.querySelector('output').textContent = parts[slider.value].dataset.epoch;
    slider.setAttribute('aria-valuetext', `Epoch ${parts[slider.value].dataset.epoch}`);
  };
  slider.parentElement.hidden = parts.length < 2;
  slider.addEventListener('input', move);
  const place = parts.findIndex((part) => part.dataset.epoch === epoch);
  if (place >= 0) slider.value = place;
  if (parts.length) move();
  return slider;
}
