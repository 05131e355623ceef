// The Print button of a report, which loads no other script of the pages.

document.querySelector('[data-print]').addEventListener('click', () => print());
