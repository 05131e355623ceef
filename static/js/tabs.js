// Tabs within a page: one list of role=tab buttons, each with aria-controls.

/** Makes `list` switch its panels; `shown(panel)` is called whenever one is shown. */
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
    shown(document.getElementById(tab.getAttribute('aria-controls')));
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
}
