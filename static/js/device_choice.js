// Training devices: the CPU, the next free GPUs, or specific ones. Several GPUs are checkboxes, all else radio buttons.

/** Ticking a GPU clears the radio buttons and vice versa; settings for several GPUs are shown with them. */
export function startDevices(form) {
  const box = document.getElementById('devices');
  const gpus = [...box.querySelectorAll('[name="select_gpus"]')];
  if (!gpus.length) return;
  const radios = [...box.querySelectorAll('[name="select_gpu"]')];
  const count = form.elements.select_gpu_count;

  const show = () => {
    const next = radios.some(({ value, checked }) => value === 'next' && checked);
    const several = gpus.filter(({ checked }) => checked).length > 1 || (next && Number(count.value) > 1);
    document.getElementById('gpu-count').hidden = !next;
    document.getElementById('weights-on-field').hidden = !several;
  };
  box.addEventListener('change', ({ target }) => {
    if (radios.includes(target)) for (const gpu of gpus) gpu.checked = false;
    if (gpus.includes(target)) {
      const some = gpus.some(({ checked }) => checked);
      for (const radio of radios) radio.checked = !some && radio.value === 'next';
    }
    show();
  });
  count.addEventListener('input', show);
  show();
}
