// The keys of the label page, as its dialog lists them.

export const KEYS = [
  [
    'Images',
    [
      ['→ D', 'next image'],
      ['← A', 'previous image'],
      ['Enter', 'accept, and open the next image to label'],
      ['X', 'skip the image, or take it back'],
      ['R', 'mark what somebody else labeled as reviewed'],
      ['C', 'copy the labels of the labeled image before'],
    ],
  ],
  [
    'Classes',
    [
      ['1 … 9, 0', 'class of the image, of the selected object, and of what is drawn next'],
      ['/', 'find a class by its name'],
    ],
  ],
  [
    'Boxes and polygons',
    [
      ['B', 'box: drag it, or click two corners'],
      ['N', 'new box in the middle of what is visible'],
      ['P', 'polygon: click its corners or draw its outline; Enter closes it'],
      ['V Ctrl', 'select, move and reshape'],
      ['. ,', 'next and previous object'],
      ['Shift+arrows', 'move the selected object by one pixel'],
      ['Delete', 'delete the selected object or corner, or the last corner of an unfinished polygon'],
    ],
  ],
  [
    'Masks',
    [
      ['B', 'brush; Shift erases'],
      ['P', 'paint the inside of an outline'],
      ['G', 'fill the connected pixels of the same class'],
      ['E', 'erase or paint'],
      ['[ ]', 'size of the brush'],
    ],
  ],
  [
    'View',
    [
      ['Wheel + −', 'zoom; two fingers zoom, too'],
      ['Space', 'hold it and drag to pan; the right mouse button pans, too'],
      ['F', 'fit the image into the window'],
      ['H', 'hide the labels'],
      ['Esc', 'cancel, or deselect'],
      ['Ctrl+Z Ctrl+Y', 'undo and redo'],
    ],
  ],
];

/** Whether keys of the page would disturb typing in an element. */
export const typesText = (target) => Boolean(target.matches?.('input, select, textarea'));
