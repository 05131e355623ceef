// The compute target of a new job: shows the fields with data-target that belong to the chosen one, and submits only these.

export function startComputeTarget(form) {
  const target = form.elements.compute_target;
  if (!target) return; // there is only this machine
  const show = () => {
    for (const part of form.querySelectorAll('[data-target]')) {
      part.disabled = part.hidden = !part.dataset.target.split(' ').includes(target.value);
    }
  };
  for (const choice of target) choice.addEventListener('change', show);
  show();
}
