// Training devices: the CPU, the next free GPUs, or specific ones. Several GPUs are checkboxes, all else radio buttons.

/** Ticking a GPU clears the radio buttons and vice versa; settings for several GPUs are shown with them. */
export function startDevices(form) {
  const box = document.getElementById('devices');
  const gpus = [...box.querySelectorAll('[name="select_gpus"]')];
  const radios = [...box.querySelectorAll('[name="select_gpu"]')];
  const count = form.elements.select_gpu_count;
  if (!count) return; // there is one GPU at most
  const isOnCluster = () => (form.elements.compute_target?.value ?? 'local') !== 'local';

  const show = () => {
    const next = radios.some(({ value, checked }) => value === 'next' && checked);
    const several = gpus.filter(({ checked }) => checked).length > 1 || (next && Number(count.value) > 1);
    count.disabled = document.getElementById('gpu-count').hidden = !isOnCluster() && !(next && gpus.length);
    const weights = document.getElementById('weights-on-field');
    if (weights) weights.hidden = !several;
  };
  box.addEventListener('change', ({ target }) => {
    if (radios.includes(target)) for (const gpu of gpus) gpu.checked = false;
    if (gpus.includes(target)) {
      const some = gpus.some(({ checked }) => checked);
      for (const radio of radios) radio.checked = !some && radio.value === 'next';
    }
  });
  form.addEventListener('change', show);
  count.addEventListener('input', show);
  show();
}
