// A menu of the panels of a long page, which stays in view on narrow screens.

import { element } from './element.js';

/** Adds the menu after `head`. */
export function startSectionMenu(head) {
  const menu = element('select', { class: 'select', 'aria-label': 'On this page' });
  head.after(element('div', 'section-menu', menu));
  let panels = [];

  // Panels appear during a training.
  function fill() {
    panels = [...document.querySelectorAll('main section.panel[aria-labelledby], main details.panel')].filter((panel) => panel.checkVisibility());
    menu.replaceChildren(new Option('On this page…'), ...panels.map((panel) => new Option(titleOf(panel))));
  }
  fill();
  menu.addEventListener('focus', fill);
  document.addEventListener('parts-refreshed', () => menu !== document.activeElement && fill());
  menu.addEventListener('change', () => {
    const panel = panels[menu.selectedIndex - 1];
    menu.selectedIndex = 0;
    if (!panel) return;
    panel.open = true; // of a folded one
    panel.scrollIntoView();
    const title = titleIn(panel);
    if (!title.matches('summary')) title.tabIndex = -1;
    title.focus({ preventScroll: true });
  });
}

const titleIn = (panel) => panel.querySelector('h2, summary');

/** The title without the words beside it. */
function titleOf(panel) {
  const title = titleIn(panel).cloneNode(true);
  title.querySelector('.muted')?.remove();
  return title.textContent.trim();
}
