// The gallery: a change of split, class or page size shows at once.

const form = document.getElementById('explore-form');
form.querySelector('[data-without-script]').hidden = true;
form.addEventListener('change', () => form.requestSubmit());

// Small images are enlarged with sharp pixels, large ones are made smaller smoothly.
for (const image of document.querySelectorAll('.gallery img')) {
  const choose = () => image.classList.toggle('pixelated', image.naturalWidth < image.clientWidth);
  if (image.complete) choose();
  else image.addEventListener('load', choose);
}
