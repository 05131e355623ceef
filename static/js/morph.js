// Updates a part of the page by changing only what differs.

import { Idiomorph } from '../vendor/idiomorph.js';

// Elements are kept, so that pending clicks, the focus and text being typed are preserved.
const KEEPING = {
  beforeNodeMorphed: (old) => !(old === document.activeElement && old.matches('input, select, textarea')),
  beforeAttributeUpdated: (name, element) => !(name === 'open' && element.matches('details')),
};

/** Makes `part` equal to `fresh`. Elements with an id are matched by it, wherever they are. */
export function morph(part, fresh) {
  Idiomorph.morph(part, fresh, { morphStyle: 'outerHTML', callbacks: KEEPING });
}

/** Makes the children of `box` equal to those of `fresh`, an element or a fragment. */
export function morphChildren(box, fresh) {
  Idiomorph.morph(box, fresh.childNodes, { morphStyle: 'innerHTML', callbacks: KEEPING });
}
