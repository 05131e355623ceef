// Draws the classes of the pixels of an image on a canvas: areas, outlines, and a mask of the background.

const IGNORED = 255;
// Smaller masks are enlarged to about this side in pixels, so that lines can be thin.
const SIDE = 480;
const drawings = new WeakMap();

/** Draws the classes of the view `root` with the `settings` of its sliders. */
export async function drawSegments(root, settings) {
  const drawing = drawings.get(root) ?? { highlighted: null, pinned: null };
  drawings.set(root, drawing);
  drawing.settings = settings;
  drawing.data ??= load(root);
  paint(root, drawing, await drawing.data);
}

/** Dims all classes but that of `button`; without one, shows all again. A click keeps it so, a second one does not. */
export async function highlight(root, button, isClick = false) {
  const drawing = drawings.get(root);
  if (!drawing) return;
  const chosen = button ? Number(button.dataset.highlight) : null;
  if (isClick) {
    drawing.pinned = drawing.pinned === chosen ? null : chosen;
    for (const other of root.querySelectorAll('[data-highlight]')) other.setAttribute('aria-pressed', Number(other.dataset.highlight) === drawing.pinned);
  }
  drawing.highlighted = isClick ? drawing.pinned : (chosen ?? drawing.pinned);
  paint(root, drawing, await drawing.data);
}

async function load(root) {
  const { mask, chances, classes, ...size } = JSON.parse(root.querySelector('script').textContent);
  const factor = Math.max(1, Math.round(SIDE / Math.max(size.width, size.height)));
  const [width, height] = [factor * size.width, factor * size.height];
  Object.assign(root.querySelector('canvas'), { width, height });
  const colors = new Map(classes.map(({ index, color }) => [index, [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))]));
  return { classes: await pixels(mask, width, height), chances: chances && (await pixels(chances, width, height)), colors, width, height };
}

/** The red channel of a PNG file. */
async function pixels(url, width, height) {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width, height });
  const context = canvas.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data.filter((_, place) => place % 4 === 0);
}

function paint(root, { settings, highlighted }, data) {
  const { opacity, mask, line, gamma, threshold = 50 } = settings;
  const { width, height, colors } = data;
  const found = data.chances ? data.chances.map((chance, place) => (data.classes[place] === IGNORED ? IGNORED : Number(chance >= 2.55 * threshold))) : data.classes;
  const inside = distances(found, width, height);
  const furthest = Math.max(1, ...sample(inside));
  const canvas = root.querySelector('canvas');
  const context = canvas.getContext('2d');
  const image = context.createImageData(width, height);
  // Lines are as wide on the screen for all sizes of masks.
  const wide = (line * width) / Math.max(1, canvas.clientWidth || width);
  for (let place = 0; place < found.length; place += 1) {
    const index = found[place];
    if (index === IGNORED) continue;
    const isBackground = index === 0;
    let alpha = mask / 100;
    let color = [0, 0, 0];
    if (!isBackground) {
      color = colors.get(index) ?? [255, 255, 255];
      alpha = inside[place] <= wide ? 1 : (opacity / 100) * (1 - inside[place] / (furthest + 1)) ** (gamma - 1);
    }
    if (highlighted !== null && highlighted !== index) [alpha, color] = [Math.max(alpha, 0.6), [0, 0, 0]];
    if (highlighted === index && isBackground) alpha = 0;
    image.data.set([...color, Math.min(255, Math.round(255 * alpha))], 4 * place);
  }
  context.putImageData(image, 0, 0);
  if (data.chances) showShares(root, found);
}

function showShares(root, found) {
  const valid = found.filter((index) => index !== IGNORED).length || 1;
  for (const button of root.querySelectorAll('[data-highlight]')) {
    const count = found.filter((index) => index === Number(button.dataset.highlight)).length;
    button.querySelector('[data-share]').textContent = `${((100 * count) / valid).toFixed(1)}%`;
  }
}

/** About the distance of each pixel to the nearest one of another class, in pixels: a chamfer transform of two passes. */
function distances(found, width, height) {
  const far = width + height;
  const result = new Float32Array(width * height).fill(far);
  const scan = (from, to, step, neighbors) => {
    for (let place = from; place !== to; place += step) {
      const x = place % width;
      const y = (place - x) / width;
      for (const [right, down, cost] of neighbors) {
        if (x + right < 0 || x + right >= width || y + down < 0 || y + down >= height) continue;
        const other = place + right + down * width;
        const reached = found[other] === found[place] ? result[other] + cost : cost;
        if (reached < result[place]) result[place] = reached;
      }
    }
  };
  const before = [
    [-1, 0, 1],
    [0, -1, 1],
    [-1, -1, Math.SQRT2],
    [1, -1, Math.SQRT2],
  ];
  scan(0, found.length, 1, before);
  scan(found.length - 1, -1, -1, before.map(([right, down, cost]) => [-right, -down, cost]));
  return result;
}

/** Every hundredth or so of the finite distances: as the arguments of a function, all would be too many. */
function sample(inside) {
  const step = Math.max(1, Math.floor(inside.length / 10_000));
  return inside.filter((_, place) => place % step === 0);
}
