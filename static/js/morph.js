// Brings a part of the page up to date by changing what differs.

import { Idiomorph } from '../vendor/idiomorph.js';

// Elements stay the same ones, so that a click in that moment counts, the focus stays, and so does what is being typed.
const KEEPING = {
  beforeNodeMorphed: (old) => !(old === document.activeElement && old.matches('input, select, textarea')),
  beforeAttributeUpdated: (name, element) => !(name === 'open' && element.matches('details')),
};

/** Makes `part` be as `fresh`. Elements with an id are known by it wherever they stand. */
export function morph(part, fresh) {
  Idiomorph.morph(part, fresh, { morphStyle: 'outerHTML', callbacks: KEEPING });
}

/** Makes the children of `box` be as those of `fresh`. */
export function morphChildren(box, fresh) {
  Idiomorph.morph(box, fresh.childNodes, { morphStyle: 'innerHTML', callbacks: KEEPING });
}
