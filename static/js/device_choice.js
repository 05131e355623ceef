// Where a model trains: the CPU, the next free GPUs, or chosen ones. Several GPUs are boxes, the rest are radios.

/** Ticking a GPU takes the choice from the radios and the other way round; what concerns several GPUs shows with them. */
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
    document.getElementById('strategy-field').hidden = !several;
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
