// The initial weights of a standard network, and the fine-tuning of any network.

/** Returns `show`, to be called when the method or the network has changed: it offers the choices that apply. */
export function startFineTuning(form, networks) {
  const box = form.elements.fine_tune;
  const radios = [...form.querySelectorAll('[name="initial_weights"]')];
  const network = () => form.querySelector('[name="standard_networks"]:checked');
  const weights = () => radios.find(({ checked }) => checked).value;

  function show() {
    const method = form.elements.method.value;
    const pretrained = network()?.dataset.pretrained ?? '';
    const isStandard = method === 'standard';
    include(document.getElementById('standard-weights'), isStandard && pretrained !== '');
    const initial = isStandard && pretrained ? weights() : 'random';
    include(document.getElementById('tuning-weights'), method === 'custom' || initial === 'file');
    include(document.getElementById('tuning'), !isStandard || initial !== 'random');
    for (const note of form.querySelectorAll('[data-weights]')) note.hidden = initial !== 'imagenet' || note.dataset.weights !== pretrained;
  }

  for (const radio of radios) {
    radio.addEventListener('change', () => {
      show();
      if (networks.isApplying()) return;
      // Pretrained weights are rarely used without fine-tuning.
      const wanted = radio.value !== 'random';
      if (box.checked === wanted) return;
      box.checked = wanted;
      box.dispatchEvent(new Event('change', { bubbles: true }));
    });
  }
  box.addEventListener('change', () => {
    if (!networks.isApplying()) networks.fineTune(box.checked);
  });
  // Pressed by the suggestion in the result of the check.
  document.getElementById('use-fine-tune').addEventListener('click', () => {
    choose(form.querySelector('[name="method"][value="standard"]'));
    const fitting = (radio) => radio.dataset.pretrained && radio.closest('.choice').dataset.fits !== 'false';
    if (!fitting(network())) choose([...form.querySelectorAll('[name="standard_networks"]')].find(fitting));
    choose(radios.find(({ value }) => value === 'imagenet'));
    box.focus();
  });
  return { show };
}

function choose(radio) {
  if (radio.checked) return;
  radio.checked = true;
  radio.dispatchEvent(new Event('change', { bubbles: true }));
}

/** Shows or hides a fieldset. Hidden fields are not sent. */
function include(fieldset, shown) {
  fieldset.hidden = fieldset.disabled = !shown;
}
