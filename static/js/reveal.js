/** Opens all collapsed sections around `control`, so that it can be focused. */
export function reveal(control) {
  for (let section = control.closest('details'); section; section = section.parentElement.closest('details')) section.open = true;
}
