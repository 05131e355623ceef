// Tabs within a page: one list of role=tab buttons, each with aria-controls.

import { reveal } from './reveal.js';

/** Makes `list` switch its panels; `shown(panel, isChosen)` is called whenever one is shown. Returns a function that selects a tab. */
export function startTabs(list, shown = () => {}) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];

  const select = (tab, focus = true) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute('aria-selected', String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute('aria-controls')).hidden = !chosen;
    }
    if (focus) tab.focus();
    shown(document.getElementById(tab.getAttribute('aria-controls')), focus);
  };

  list.addEventListener('click', (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) select(tab);
  });
  list.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.indexOf(document.activeElement);
    select(tabs[(at + step + tabs.length) % tabs.length]);
  });
  select(tabs[0], false);
  return select;
}

/** Switches the parts of a page; its address ends with the id of the part, or of something in it. Without scripts, all are shown. */
export function startPageTabs(list) {
  list.hidden = false;
  const select = startTabs(list, (part, isChosen) => {
    if (!isChosen) return;
    history.replaceState(history.state, '', `#${part.id}`);
    if (part.getBoundingClientRect().top < 0) part.scrollIntoView(); // the list stays in view
  });
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    const part = target?.closest('[role="tabpanel"]');
    if (!part) return;
    select(list.querySelector(`[aria-controls="${part.id}"]`), false);
    reveal(target);
    if (target !== part) target.scrollIntoView();
  };
  follow();
  addEventListener('hashchange', follow);
}
