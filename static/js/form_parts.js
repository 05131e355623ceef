// Small behaviors that both long forms share.

/** Shows the element with the id in data-reveals while the box is ticked, and hides the one in data-hides. */
export function startReveals(form) {
  for (const box of form.querySelectorAll('[data-reveals]')) {
    const target = document.getElementById(box.dataset.reveals);
    const other = document.getElementById(box.dataset.hides ?? '');
    const show = () => {
      target.hidden = !box.checked;
      if (other) other.hidden = box.checked;
    };
    box.addEventListener('change', show);
    show();
  }
}

/** Shows elements with data-<name>="value" while `select`, a list or a group of radio buttons, has that value. */
export function startVariants(form, select, name) {
  const show = () => {
    for (const part of form.querySelectorAll(`[data-${name}]`)) {
      part.hidden = !part.dataset[name].split(' ').includes(select.value);
    }
  };
  for (const control of select instanceof RadioNodeList ? select : [select]) control?.addEventListener('change', show);
  if (select) show();
}

/** Sets the name to `suggest()` until the user enters one. Returns the function to call on changes. */
export function startSuggestedName(input, suggest) {
  const isSuggested = input.dataset.suggested !== undefined && input.value === input.defaultValue;
  let own = input.value !== '' && !isSuggested;
  const mark = () => input.toggleAttribute('data-suggested', !own); // suggestions need not be remembered
  input.addEventListener('input', () => {
    own = input.value !== '';
    mark();
  });
  const update = () => {
    if (!own) input.value = suggest().slice(0, input.maxLength < 0 ? undefined : input.maxLength);
    mark();
  };
  update();
  return update;
}

/** Debounces `act`: calls it once when calls have stopped for `milliseconds`. */
export function settled(act, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}
