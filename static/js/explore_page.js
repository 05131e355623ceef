// The gallery: a change of split, class or page size shows at once.

const form = document.getElementById('explore-form');
form.querySelector('[data-without-script]').hidden = true;
form.addEventListener('change', () => form.requestSubmit());
