// Updates a part of the page by changing only what differs.

import { Idiomorph } from '../vendor/idiomorph.js';

// Elements are kept, so that pending clicks, the focus and text being typed are preserved.
const KEEPING = {
  beforeNodeMorphed: (old) => !(old === document.activeElement && old.matches('input, select, textarea')),
  beforeAttributeUpdated: (name, element) => !(name === 'open' && element.matches('details')),
};

const KEEPING_CHOICES = {
  ...KEEPING,
  beforeAttributeUpdated: (name, element) => KEEPING.beforeAttributeUpdated(name, element) && !(name === 'selected' && isChosen(element.closest('select'))),
};

const ABOUT_ERRORS = ['aria-describedby', 'aria-invalid'];

const KEEPING_SCRIPTS = {
  beforeAttributeUpdated: (name, element) => KEEPING.beforeAttributeUpdated(name, element) && name !== 'aria-busy' && !(name === 'disabled' && element.matches('button')),
  beforeNodeMorphed(old, fresh) {
    if (fresh.dataset?.keep === undefined && !fresh.matches?.('[type="password"], [type="file"]')) return true;
    for (const control of [fresh, ...fresh.querySelectorAll('[id][name]')]) describeAlike(document.getElementById(control.id), control);
    return false;
  },
};

/** Whether the visitor chose another option than the server did. */
function isChosen(select) {
  const preset = [...select.options].findLastIndex((option) => option.defaultSelected);
  return select.selectedIndex !== Math.max(0, preset);
}

function describeAlike(control, fresh) {
  for (const name of ABOUT_ERRORS) {
    if (fresh.hasAttribute(name)) control?.setAttribute(name, fresh.getAttribute(name));
    else control?.removeAttribute(name);
  }
}

/** Makes `part` equal to `fresh`, except the options that the visitor chose if it `keepsChoices`. Elements with an id are matched by it, wherever they are. */
export function morph(part, fresh, { keepsChoices = false } = {}) {
  Idiomorph.morph(part, fresh, { morphStyle: 'outerHTML', callbacks: keepsChoices ? KEEPING_CHOICES : KEEPING });
}

/** Makes `form` equal to `fresh`, except the value being edited, passwords and files, and the parts that have data-keep in `fresh`. */
export function morphForm(form, fresh) {
  const ignoreActiveValue = document.activeElement.matches('input, select, textarea'); // other elements would keep their contents
  Idiomorph.morph(form, fresh, { morphStyle: 'outerHTML', callbacks: KEEPING_SCRIPTS, ignoreActiveValue });
}

/** Makes the children of `box` equal to those of `fresh`, an element or a fragment. */
export function morphChildren(box, fresh) {
  Idiomorph.morph(box, fresh.childNodes, { morphStyle: 'innerHTML', callbacks: KEEPING });
}
