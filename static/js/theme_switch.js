// The button that cycles through automatic, light and dark. Other scripts listen for `theme-changed` on the document.

const CHOICES = ['auto', 'light', 'dark'];
const WORDS = { auto: 'automatic', light: 'light', dark: 'dark' };
const system = matchMedia('(prefers-color-scheme: dark)');

function stored() {
  try {
    return localStorage.getItem('theme') ?? 'auto';
  } catch {
    return 'auto';
  }
}

function remember(choice) {
  try {
    if (choice === 'auto') localStorage.removeItem('theme');
    else localStorage.setItem('theme', choice);
  } catch {
    // The choice then applies to this page only.
  }
}

function show(theme) {
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new CustomEvent('theme-changed'));
}

function apply(choice, button) {
  const dark = choice === 'auto' ? system.matches : choice === 'dark';
  for (const icon of button.querySelectorAll('[data-theme-icon]')) {
    icon.hidden = icon.dataset.themeIcon !== choice;
  }
  button.title = `Theme: ${WORDS[choice]}`;
  button.setAttribute('aria-label', button.title);
  show(dark ? 'dark' : 'light');
}

/** Makes `button` switch the theme. */
export function startThemeSwitch(button) {
  let choice = CHOICES.includes(stored()) ? stored() : 'auto';
  apply(choice, button);
  button.addEventListener('click', () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    remember(choice);
    apply(choice, button);
  });
  system.addEventListener('change', () => apply(choice, button));
  addEventListener('beforeprint', () => show('light')); // paper is white
  addEventListener('afterprint', () => apply(choice, button));
}
