// The page of an embedding map: a scatter plot of records to zoom and move. A click on a point shows its record.

import './activities.js';
import { toast } from './dialog.js';
import { element } from './element.js';
import { getJson } from './http.js';
import { startViewer } from './image_viewer.js';
import { morph } from './morph.js';
import { fragment, swapping } from './swap.js';
import { Zoom } from './zoom.js';

// The longer side of the map, with margins, at scale 1.
const SIDE = 1000;
const MARGIN = 25;
// In pixels of CSS.
const RADIUS = 3;
const REACH = 12;
const DRAG_DISTANCE = 4;
// Groups with a color of their own in the tokens; more have hues that never repeat.
const TOKEN_COLORS = 6;
const GOLDEN_ANGLE = 222.49;
const MAX_LEGEND = 100;
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

const panel = document.getElementById('map');
const computation = document.getElementById('embeddings');
const { shown } = computation.dataset;
document.getElementById('map-choice')?.addEventListener('change', (event) => event.currentTarget.requestSubmit());

// The name of the map that was started here.
let wanted = '';
document.addEventListener('activity-started', ({ detail }) => (wanted = detail.name ?? ''));

// At the end of a computation, show the map `wanted`, or the one of this page.
document.addEventListener('parts-refreshed', () => {
  const { state, shown: latest } = computation.dataset;
  // The map by PCA of a first computation is shown while t-SNE runs.
  if (state === 'failed' || (state === 'running' && (shown || !latest))) return;
  if (wanted) location.assign(`${location.pathname}?name=${encodeURIComponent(wanted)}`);
  else if (latest !== shown) location.reload();
});

if (panel) {
  startViewer(document.getElementById('viewer'), panel);
  getJson(panel.dataset.url).then(
    ({ points }) => start(points),
    (error) => toast(error.message, 'danger'),
  );
}

function start(points) {
  const [canvas, hint, legend, spoken, record] = ['map-canvas', 'map-hint', 'map-legend', 'map-point', 'map-record'].map((id) => document.getElementById(id));
  const names = JSON.parse(panel.dataset.groups);
  const groups = points.groups ?? points.records.map(() => 0);
  const right = points.predicted && points.groups && points.predicted.map((guess, place) => Number(guess === groups[place]));
  const hidden = new Set();
  const chosen = (name) => panel.querySelector(`[name="map-${name}"]:checked`).value;
  let places = []; // of the points, in pixels at scale 1
  let current = -1;
  let isRight = false; // whether colors show right and wrong predictions
  const order = [...points.records.keys()];

  document.getElementById('map-controls').hidden = false;
  document.getElementById('map-colors').hidden = !right;

  const category = (point) => (isRight ? right : groups)[point];
  const isShown = (point) => !hidden.has(category(point));
  const position = (point) => [0, 1].map((axis) => [zoom.x, zoom.y][axis] + places[point][axis] * zoom.scale);

  function colorOf(key) {
    const style = getComputedStyle(document.documentElement);
    const token = (name) => style.getPropertyValue(`--${name}`).trim();
    if (isRight) return token(key ? 'success-solid' : 'danger-solid');
    if (key < 0) return token('ink-faint');
    if (names.length <= TOKEN_COLORS) return token(`chart-${key + 1}`);
    return `hsl(${(key * GOLDEN_ANGLE) % 360} 75% ${(style.colorScheme === 'dark' ? 68 : 40) + (key % 2 ? 6 : -6)}%)`;
  }

  function paint() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const ratio = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.lineWidth = 1.5;
    const colors = new Map();
    const shape = (path, stroke, point) => {
      context.beginPath();
      path(...position(point));
      if (stroke) context.stroke();
      else context.fill();
    };
    const circle = (radius) => (x, y) => context.arc(x, y, radius, 0, 2 * Math.PI);
    const cross = (x, y) => {
      context.moveTo(x - RADIUS, y - RADIUS);
      context.lineTo(x + RADIUS, y + RADIUS);
      context.moveTo(x + RADIUS, y - RADIUS);
      context.lineTo(x - RADIUS, y + RADIUS);
    };
    const drawn = order.filter(isShown);
    // Wrong predictions are crosses, above all others.
    if (isRight) drawn.sort((one, other) => right[other] - right[one]);
    for (const point of drawn) {
      const key = category(point);
      if (!colors.has(key)) colors.set(key, colorOf(key));
      const isWrong = isRight && !key;
      context.fillStyle = context.strokeStyle = colors.get(key);
      context.globalAlpha = isWrong ? 1 : 0.8;
      shape(isWrong ? cross : circle(RADIUS), isWrong, point);
    }
    if (current < 0) return;
    context.strokeStyle = getComputedStyle(canvas).color;
    context.globalAlpha = 1;
    shape(circle(RADIUS + 4), true, current);
  }

  let frame = 0;
  const draw = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  };

  function describe(point) {
    const words = [`Record ${points.records[point].toLocaleString('en')}`];
    if (points.groups) words.push(names[groups[point]] ?? `no ${panel.dataset.groupWord}`);
    if (right) words.push(right[point] ? 'predicted right' : `predicted as ${names[points.predicted[point]] ?? 'another class'}`);
    return words.join(', ');
  }

  /** Shows the point as the current one; -1 for none. */
  function select(point) {
    current = point;
    hint.hidden = point < 0;
    if (point >= 0) {
      const [x, y] = position(point);
      const [image, words] = hint.children;
      words.textContent = describe(point);
      image.hidden = !panel.dataset.thumbnail;
      if (!image.hidden) image.src = panel.dataset.thumbnail.replace(`/${panel.dataset.split}/0`, `/${panel.dataset.split}/${points.records[point]}`);
      Object.assign(hint.style, { left: `${x}px`, top: `${y}px` });
      hint.classList.toggle('is-left', x > canvas.clientWidth / 2);
      hint.classList.toggle('is-above', y > canvas.clientHeight / 2);
    }
    draw();
  }

  function nearest({ offsetX, offsetY }) {
    let [best, least] = [-1, REACH];
    for (const point of order.filter(isShown)) {
      const [x, y] = position(point);
      const distance = Math.hypot(x - offsetX, y - offsetY);
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  const swap = swapping(record, (error) => toast(error.message, 'danger'));
  const open = (point) =>
    swap(
      (signal) => fragment(`${panel.dataset.page}&record=${points.records[point]}`, { signal }),
      (page) => {
        morph(record, page.getElementById('map-record'));
        (record.querySelector('[data-enlarge]') ?? { click: () => record.focus() }).click();
      },
    );

  const redraw = () => select(-1);
  // The canvas is painted, not moved.
  const zoom = new Zoom(canvas, { style: {}, classList: { toggle() {} } }, redraw);
  // The page scrolls as usual until the map has been clicked or zoomed with Ctrl.
  const scroll = (event) => document.activeElement !== canvas && !event.ctrlKey && event.stopPropagation();
  canvas.parentElement.addEventListener('wheel', scroll, { capture: true });

  function place() {
    const coordinates = points[chosen('method')];
    const ends = (axis) => coordinates.reduce(([low, high], pair) => [Math.min(low, pair[axis]), Math.max(high, pair[axis])], [Infinity, -Infinity]);
    const [[left, end], [bottom, top]] = [ends(0), ends(1)];
    const unit = (SIDE - 2 * MARGIN) / (Math.max(end - left, top - bottom) || 1);
    places = coordinates.map(([x, y]) => [MARGIN + unit * (x - left), MARGIN + unit * (top - y)]);
    zoom.setSize(2 * MARGIN + unit * (end - left), 2 * MARGIN + unit * (top - bottom));
  }

  let pressed = null;
  canvas.addEventListener('pointerdown', (event) => (pressed = event));
  canvas.addEventListener('pointermove', (event) => !event.buttons && event.pointerType !== 'touch' && select(nearest(event)));
  canvas.addEventListener('pointerleave', (event) => event.buttons || select(-1));
  canvas.addEventListener('click', (event) => {
    if (pressed && Math.hypot(event.x - pressed.x, event.y - pressed.y) > DRAG_DISTANCE) return;
    select(nearest(event));
    if (current >= 0) open(current);
  });
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = { '+': () => zoom.in(), '=': () => zoom.in(), '-': () => zoom.out(), 0: () => zoom.reset(), Escape: redraw, Enter: () => current >= 0 && open(current) };
    if (STEPS[event.key]) {
      const all = order.filter(isShown);
      const at = all.indexOf(current);
      const next = all.at((at < 0 ? Math.min(0, STEPS[event.key]) : at + STEPS[event.key]) % all.length);
      if (next === undefined) return;
      const [x, y] = position(next);
      if (x < 0 || y < 0 || x > canvas.clientWidth || y > canvas.clientHeight) zoom.reset();
      select(next);
      spoken.textContent = describe(next);
    } else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  });

  function drawLegend() {
    const titles = isRight ? [[0, 'Wrong'], [1, 'Right']] : [...names.entries(), [-1, `No ${panel.dataset.groupWord}`]];
    const entries = titles.map(([key, words]) => ({ key, words, total: (isRight ? right : groups).filter((each) => each === key).length }));
    const found = entries.filter(({ total }) => total || isRight);
    legend.hidden = found.length < 2;
    legend.replaceChildren(
      ...found.slice(0, MAX_LEGEND).map(({ key, words, total }) => {
        const box = Object.assign(element('input', { type: 'checkbox' }), { checked: !hidden.has(key) });
        box.addEventListener('change', () => {
          hidden[box.checked ? 'delete' : 'add'](key);
          redraw();
        });
        const swatch = element('span', { class: isRight && !key ? 'swatch swatch-cross' : 'swatch', '--color': colorOf(key) });
        return element('label', '', box, swatch, element('bdi', { class: 'clipped', title: words }, words), element('span', 'muted', total.toLocaleString('en')));
      }),
    );
  }

  panel.addEventListener('change', ({ target }) => {
    if (target.name === 'map-method') place();
    if (target.name === 'map-color') recolor();
  });
  document.getElementById('map-reset').addEventListener('click', () => zoom.reset());
  document.addEventListener('theme-changed', () => {
    drawLegend();
    draw();
  });

  function recolor() {
    isRight = Boolean(right) && chosen('color') === 'right';
    hidden.clear();
    drawLegend();
    redraw();
  }

  place();
  recolor();
}
