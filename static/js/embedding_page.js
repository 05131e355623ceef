// The page of an embedding map: a scatter plot to zoom and move, and the neighbors of a point.

import './activities.js';
import { toast } from './dialog.js';
import { element } from './element.js';
import { getJson } from './http.js';
import { startViewer } from './image_viewer.js';
import { morph } from './morph.js';
import { fragment, swapping } from './swap.js';

const MARGIN = 0.05;
const MAX_ZOOM = 200;
const WHEEL_ZOOM = 0.0015;
const KEY_ZOOM = 1.5;
// In pixels of CSS.
const POINT_RADIUS = 3;
const REACH = 12;
const DRAG_DISTANCE = 4;
// Groups with a color of their own in the tokens; more have hues that never repeat.
const TOKEN_COLORS = 6;
const GOLDEN_ANGLE = 222.49;
const MAX_LEGEND = 100;
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const panel = document.getElementById('map');
const computation = document.getElementById('embeddings');
const { shown, state: firstState } = computation.dataset;
document.getElementById('map-choice')?.addEventListener('change', (event) => event.currentTarget.requestSubmit());

// The name of the map that was started here.
let wanted = '';
let isFollowed = firstState === 'running';
document.addEventListener('activity-started', ({ detail }) => {
  wanted = detail.name ?? '';
  isFollowed = true;
});

// At the end of a computation, show the map `wanted`, or the one of this page.
document.addEventListener('parts-refreshed', () => {
  const { state, shown: latest } = computation.dataset;
  isFollowed ||= state === 'running';
  // The map by PCA of a first computation is shown while t-SNE runs.
  if (!isFollowed || state === 'failed' || (state === 'running' && (shown || !latest))) return;
  isFollowed = false;
  if (wanted) location.assign(`${location.pathname}?name=${encodeURIComponent(wanted)}`);
  else if (latest !== shown) location.reload();
});
if (panel) start();

/** A map of points; `x` and `y` are coordinates of the current method, from 0 to 1. */
async function start() {
  const canvas = document.getElementById('map-canvas');
  const hint = document.getElementById('map-hint');
  const legend = document.getElementById('map-legend');
  const names = JSON.parse(panel.dataset.groups);
  let points;
  try {
    ({ points } = await getJson(panel.dataset.url));
  } catch (error) {
    toast(error.message, 'danger');
    return;
  }
  const count = points.records.length;
  const groups = points.groups ?? new Array(count).fill(0);
  const right = points.predicted && points.groups ? points.predicted.map((guess, place) => guess === groups[place]) : null;
  const hidden = new Set();
  const view = { x: 0.5, y: 0.5, zoom: 1 };
  // The width and height of all points as fractions of the longer one, and whether the view shows all of them.
  let extent = [1, 1];
  let isFit = true;
  let xs = [];
  let ys = [];
  let current = -1;
  let colors = { groups: [], right: [] };
  let coloring = 'groups';

  document.getElementById('map-controls').hidden = false;
  document.getElementById('map-colors').hidden = !right;

  function place(method) {
    const coordinates = points[method];
    const { left, top, side, width, height } = square(coordinates);
    extent = [width / side, height / side];
    xs = coordinates.map(([x]) => (x - left) / side);
    ys = coordinates.map(([, y]) => 1 - (y - top) / side);
  }

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const token = (name) => style.getPropertyValue(`--${name}`).trim();
    const lightness = style.colorScheme === 'dark' ? 68 : 40;
    const known = Math.max(1, names.length);
    const own = (number) => (known <= TOKEN_COLORS ? token(`chart-${number + 1}`) : `hsl(${(number * GOLDEN_ANGLE) % 360} 75% ${lightness + (number % 2 ? 6 : -6)}%)`);
    colors = {
      groups: Array.from({ length: known }, (_, number) => own(number)),
      right: [token('danger-solid'), token('success-solid')],
      none: token('ink-faint'),
      ink: token('ink'),
    };
  }

  const category = (point) => (coloring === 'right' ? Number(right[point]) : groups[point]);
  const colorOf = (point) => colors[coloring][category(point)] ?? colors.none;
  const isShown = (point) => !hidden.has(category(point));
  const size = () => Math.min(canvas.clientWidth, canvas.clientHeight) * (1 - 2 * MARGIN) * view.zoom;
  const toScreen = (x, y) => [canvas.clientWidth / 2 + (x - view.x) * size(), canvas.clientHeight / 2 + (y - view.y) * size()];
  const position = (point) => toScreen(xs[point], ys[point]);

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    const radius = POINT_RADIUS * Math.min(3, view.zoom ** 0.3);
    context.lineWidth = 1.5;
    const order = Array.from({ length: count }, (_, point) => point).filter(isShown);
    // Wrong predictions are crosses, above all others.
    if (coloring === 'right') order.sort((one, other) => Number(right[other]) - Number(right[one]));
    for (const point of order) {
      const [x, y] = position(point);
      if (x < -radius || y < -radius || x > width + radius || y > height + radius) continue;
      context.beginPath();
      if (coloring === 'right' && !right[point]) {
        context.strokeStyle = colorOf(point);
        context.moveTo(x - radius, y - radius);
        context.lineTo(x + radius, y + radius);
        context.moveTo(x + radius, y - radius);
        context.lineTo(x - radius, y + radius);
        context.stroke();
      } else {
        context.globalAlpha = 0.8;
        context.fillStyle = colorOf(point);
        context.arc(x, y, radius, 0, 2 * Math.PI);
        context.fill();
        context.globalAlpha = 1;
      }
    }
    if (current >= 0 && isShown(current)) {
      const [x, y] = position(current);
      context.strokeStyle = colors.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, radius + 4, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  function describe(point) {
    const words = [`Record ${points.records[point].toLocaleString('en')}`];
    if (points.groups) words.push(names[groups[point]] ?? `no ${panel.dataset.groupWord}`);
    if (right) words.push(right[point] ? 'predicted right' : `predicted as ${names[points.predicted[point]] ?? 'another class'}`);
    return words.join(', ');
  }

  /** Shows the point as the current one; -1 for none. */
  function select(point, isSpoken = false) {
    if (point === current && !isSpoken) return;
    current = point;
    hint.hidden = point < 0;
    if (point >= 0) {
      const [x, y] = position(point);
      hint.querySelector('span').textContent = describe(point);
      const image = hint.querySelector('img');
      image.hidden = !panel.dataset.thumbnail;
      if (!image.hidden) image.src = thumbnailOf(points.records[point]);
      hint.style.left = `${x}px`;
      hint.style.top = `${y}px`;
      hint.classList.toggle('is-left', x > canvas.clientWidth / 2);
      hint.classList.toggle('is-above', y > canvas.clientHeight / 2);
      if (isSpoken) document.getElementById('map-point').textContent = describe(point);
    }
    draw();
  }

  function thumbnailOf(record) {
    return panel.dataset.thumbnail.replace(`/${panel.dataset.split}/0`, `/${panel.dataset.split}/${record}`);
  }

  function nearest(x, y, reach = REACH) {
    let best = -1;
    let least = reach * reach;
    for (let point = 0; point < count; point += 1) {
      if (!isShown(point)) continue;
      const [left, top] = position(point);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  /** The nearest point in a direction: that with the smallest sum of its distance and twice its deviation. */
  function next([dx, dy]) {
    const [x, y] = position(current);
    let best = current;
    let least = Infinity;
    for (let point = 0; point < count; point += 1) {
      if (point === current || !isShown(point)) continue;
      const [left, top] = position(point);
      const along = (left - x) * dx + (top - y) * dy;
      const across = Math.abs((left - x) * dy) + Math.abs((top - y) * dx);
      if (along > 0 && along >= across / 2 && along + 2 * across < least) [best, least] = [point, along + 2 * across];
    }
    return best;
  }

  /** Zooms by a factor around a point of the screen. */
  function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const before = size();
    const [left, top] = [view.x + (x - canvas.clientWidth / 2) / before, view.y + (y - canvas.clientHeight / 2) / before];
    isFit = false;
    view.zoom = Math.min(MAX_ZOOM, Math.max(0.5, view.zoom * factor));
    view.x = left - (x - canvas.clientWidth / 2) / size();
    view.y = top - (y - canvas.clientHeight / 2) / size();
    hide();
  }

  /** Shows all points as large as the frame allows. */
  function reset() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const shorter = Math.min(width, height) || 1;
    isFit = true;
    Object.assign(view, { x: 0.5, y: 0.5, zoom: Math.min(width / extent[0], height / extent[1]) / shorter });
    hide();
  }

  function hide() {
    hint.hidden = true;
    draw();
  }

  function showAt(point) {
    const [x, y] = position(point);
    const isInside = x > 0 && y > 0 && x < canvas.clientWidth && y < canvas.clientHeight;
    if (!isInside) Object.assign(view, { x: xs[point], y: ys[point] });
    select(point, true);
  }

  // One pointer moves the map; two zoom it.
  const pointers = new Map();
  let isDragged = false;
  const offset = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { start: offset(event), last: offset(event) });
    isDragged = pointers.size > 1;
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = offset(event);
    const pointer = pointers.get(event.pointerId);
    if (!pointer) {
      if (event.pointerType !== 'touch') select(nearest(x, y));
      return;
    }
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other.last);
    if (others.length) {
      const [other] = others;
      const distance = ([left, top]) => Math.hypot(left - other[0], top - other[1]);
      zoom(distance([x, y]) / Math.max(1, distance(pointer.last)), (x + other[0]) / 2, (y + other[1]) / 2);
    } else if (isDragged || Math.hypot(x - pointer.start[0], y - pointer.start[1]) > DRAG_DISTANCE) {
      isDragged = true;
      isFit = false;
      view.x -= (x - pointer.last[0]) / size();
      view.y -= (y - pointer.last[1]) / size();
      hide();
    }
    pointer.last = [x, y];
  });
  for (const name of ['pointerup', 'pointercancel']) {
    canvas.addEventListener(name, (event) => {
      if (!pointers.delete(event.pointerId) || isDragged || name === 'pointercancel') return;
      const point = nearest(...offset(event));
      if (point < 0) return;
      select(point, true);
      openNeighbors(points.records[point], true);
    });
  }
  canvas.addEventListener('pointerleave', () => pointers.size || select(-1));
  canvas.addEventListener(
    'wheel',
    (event) => {
      // The page scrolls as usual until the map has been clicked or zoomed with Ctrl.
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY * WHEEL_ZOOM), ...offset(event));
    },
    { passive: false },
  );
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (DIRECTIONS[event.key]) {
      const [x, y] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
      const point = current >= 0 && isShown(current) ? next(DIRECTIONS[event.key]) : nearest(x, y, Infinity);
      if (point >= 0) showAt(point);
    } else if (event.key === '+' || event.key === '=') zoom(KEY_ZOOM);
    else if (event.key === '-') zoom(1 / KEY_ZOOM);
    else if (event.key === '0') reset();
    else if (event.key === 'Escape') select(-1);
    else if (event.key === 'Enter' && current >= 0) openNeighbors(points.records[current], true);
    else return;
    event.preventDefault();
  });

  function drawLegend() {
    const entries =
      coloring === 'right'
        ? ['Wrong', 'Right'].map((words, key) => ({ key, words, total: right.filter((value) => Number(value) === key).length }))
        : [...names.map((words, key) => ({ key, words })), { key: -1, words: `No ${panel.dataset.groupWord}` }]
            .map((entry) => ({ ...entry, total: groups.filter((group) => group === entry.key).length }))
            .filter(({ total }) => total);
    legend.hidden = entries.length < 2;
    legend.replaceChildren(
      ...entries.slice(0, MAX_LEGEND).map(({ key, words, total }) => {
        const box = Object.assign(element('input', { type: 'checkbox' }), { checked: !hidden.has(key) });
        box.addEventListener('change', () => {
          if (box.checked) hidden.delete(key);
          else hidden.add(key);
          if (current >= 0 && !isShown(current)) select(-1);
          draw();
        });
        const shape = coloring === 'right' && key === 0 ? 'swatch swatch-cross' : 'swatch';
        const swatch = element('span', { class: shape, '--color': colors[coloring][key] ?? colors.none });
        return element('label', '', box, swatch, element('bdi', { class: 'clipped', title: words }, words), element('span', 'muted', total.toLocaleString('en')));
      }),
    );
  }

  panel.addEventListener('change', ({ target }) => {
    if (target.name === 'map-method') {
      place(target.value);
      reset();
      select(-1);
    } else if (target.name === 'map-color') {
      coloring = target.value;
      hidden.clear();
      drawLegend();
      draw();
    }
  });
  document.getElementById('map-reset').addEventListener('click', reset);
  document.addEventListener('theme-changed', () => {
    readColors();
    drawLegend();
    draw();
  });
  new ResizeObserver(() => (isFit ? reset() : hide())).observe(canvas);

  readColors();
  // A browser may restore the choice of an earlier visit.
  coloring = (right && panel.querySelector('[name="map-color"]:checked')?.value) || 'groups';
  place(panel.querySelector('[name="map-method"]:checked').value);
  drawLegend();
  draw();
}

/** The left, top and side of the square around coordinates, and the width and height of the box around them. */
function square(coordinates) {
  const limits = [0, 1].map((axis) => {
    const values = coordinates.map((pair) => pair[axis]);
    return [values.reduce((one, other) => Math.min(one, other)), values.reduce((one, other) => Math.max(one, other))];
  });
  const [width, height] = limits.map(([low, high]) => high - low || 1);
  const side = Math.max(width, height);
  const [left, top] = limits.map(([low, high]) => (low + high - side) / 2);
  return { left, top, side, width, height };
}

const neighbors = document.getElementById('neighbors');
const swapNeighbors = swapping(neighbors, (error) => toast(error.message, 'danger'));

/** Lists the neighbors of a record; `opens` its image in the dialog. */
function openNeighbors(record, opens = false) {
  swapNeighbors(
    (signal) => fragment(`${panel.dataset.page}&record=${record}`, { signal }),
    (page) => {
      morph(neighbors, page.getElementById('neighbors'));
      neighbors.querySelector('[name="record"]').value = record;
      const first = neighbors.querySelector('[data-enlarge]');
      if (opens && first) first.click();
      else document.getElementById('neighbors-title').focus();
    },
  );
}

if (neighbors) {
  startViewer(document.getElementById('viewer'), neighbors);
  neighbors.addEventListener('submit', (event) => {
    event.preventDefault();
    openNeighbors(event.target.elements.record.value);
  });
}
