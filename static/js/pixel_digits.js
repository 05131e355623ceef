// The ten digits in gray pixels: the illustration of the empty home page.

const SHAPES = [
  '.###.#...##...##...##...##...#.###.', '..#...##....#....#....#....#...###.', '.###.#...#....#...#...#...#...#####',
  '.###.#...#....#..##.....##...#.###.', '...#...##..#.#.#..#.#####...#....#.', '######....####.....#....##...#.###.',
  '..##..#...#....####.#...##...#.###.', '#####....#...#....#...#....#....#..', '.###.#...##...#.###.#...##...#.###.',
  '.###.#...##...#.####....#...#..##..',
];
const SVG = 'http://www.w3.org/2000/svg';
const FOUND = 5;

/** Fills every [data-pixel-digits] element under `root`. */
export function drawPixelDigits(root) {
  for (const place of root.querySelectorAll('[data-pixel-digits]')) {
    place.replaceChildren(...SHAPES.map(digit));
  }
}

function digit(shape, value) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 50 70');
  if (value === FOUND) svg.setAttribute('class', 'found');
  [...shape].forEach((mark, index) => {
    const lit = mark === '#';
    // Scanned pixels are never quite black; a fixed pattern keeps the illustration identical on every visit.
    const gray = ((index * 37 + value * 53) % 10) / 10;
    svg.append(pixel(index % 5, Math.floor(index / 5), lit ? 0.72 + 0.28 * gray : 0.05 + 0.04 * gray));
  });
  return svg;
}

function pixel(column, row, opacity) {
  const rectangle = document.createElementNS(SVG, 'rect');
  const attributes = { x: column * 10 + 0.6, y: row * 10 + 0.6, width: 8.8, height: 8.8, rx: 1.6, 'fill-opacity': opacity.toFixed(2) };
  for (const [name, setting] of Object.entries(attributes)) rectangle.setAttribute(name, setting);
  return rectangle;
}
