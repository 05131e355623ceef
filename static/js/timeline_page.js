// Draws the trace of a training step: the operations of each thread, one above the other where they are nested.

import { element } from './element.js';
import { number, shortDuration } from './format.js';
import { getJson } from './http.js';
import { errorBox } from './error_box.js';

const ROW = 14;
const TITLE = 18;
const LISTED = 20;
const COLORS = 10;
const MAX_ZOOM = 10_000;

const panel = document.getElementById('timeline');
if (panel) {
  try {
    show((await getJson(panel.dataset.url)).traceEvents);
  } catch (error) {
    panel.replaceChildren(errorBox(error));
  }
}

/** Threads with their operations, each with its level of nesting; those with the most operations first. */
function threadsOf(events) {
  const devices = new Map();
  const threads = new Map();
  const key = ({ pid, tid }) => `${pid}/${tid}`;
  for (const event of events.filter(({ ph }) => ph === 'M')) {
    if (event.name === 'process_name') devices.set(event.pid, event.args.name);
    else threads.set(key(event), { title: `${devices.get(event.pid) ?? ''} ${event.args.name}`.trim(), operations: [], levels: 0 });
  }
  const open = new Map();
  for (const operation of events.filter(({ ph }) => ph === 'X')) {
    const thread = threads.get(key(operation));
    const stack = open.get(thread) ?? [];
    while (stack.length && stack.at(-1) <= operation.ts) stack.pop();
    thread.operations.push({ ...operation, level: stack.length });
    stack.push(operation.ts + operation.dur);
    open.set(thread, stack);
    thread.levels = Math.max(thread.levels, stack.length);
  }
  return [...threads.values()].sort((one, other) => other.operations.length - one.operations.length);
}

function show(events) {
  const threads = threadsOf(events);
  const operations = threads.flatMap((thread) => thread.operations);
  const end = Math.max(1, ...operations.map(({ ts, dur }) => ts + dur));
  listLongest(operations);

  const canvas = document.getElementById('timeline-canvas');
  const hint = document.getElementById('timeline-hint');
  const view = { start: 0, zoom: 1 };
  const height = threads.reduce((sum, { levels }) => sum + TITLE + levels * ROW, 0);
  const scale = () => (canvas.clientWidth / end) * view.zoom;
  const clamp = () => {
    view.start = Math.min(Math.max(0, view.start), end - end / view.zoom);
  };

  /** Calls `draw(operation, left, top, width)` for the visible operations, and `title(text, top)` for the threads. */
  function eachVisible(draw, title = () => {}) {
    let top = 0;
    for (const thread of threads) {
      title(thread.title, top);
      for (const operation of thread.operations) {
        const left = (operation.ts - view.start) * scale();
        const width = Math.max(1, operation.dur * scale());
        if (left < canvas.clientWidth && left + width > 0) draw(operation, left, top + TITLE + operation.level * ROW, width);
      }
      top += TITLE + thread.levels * ROW;
    }
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = height * ratio;
    const style = getComputedStyle(canvas);
    const colors = Array.from({ length: COLORS }, (_, number) => style.getPropertyValue(`--chart-${number + 1}`));
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = `12px ${style.fontFamily}`;
    context.textBaseline = 'middle';
    eachVisible(
      ({ name }, left, top, width) => {
        context.fillStyle = colors[colorOf(name)];
        context.fillRect(left, top, width, ROW - 1);
      },
      (text, top) => {
        context.fillStyle = style.color;
        context.fillText(text, 4, top + TITLE / 2);
      },
    );
  }

  function zoom(factor, x = canvas.clientWidth / 2) {
    const time = view.start + x / scale();
    view.zoom = factor ? Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor)) : 1;
    view.start = time - x / scale();
    clamp();
    draw();
  }

  for (const button of panel.querySelectorAll('[data-zoom]')) button.addEventListener('click', () => zoom(Number(button.dataset.zoom)));
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX);
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener('pointermove', (event) => {
    if (event.buttons) {
      view.start -= event.movementX / scale();
      clamp();
      draw();
      return;
    }
    eachVisible((operation, left, top, width) => {
      const isOver = event.offsetX >= left && event.offsetX <= left + width && event.offsetY >= top && event.offsetY < top + ROW;
      if (isOver) hint.textContent = `${operation.name}: ${time(operation.dur)}`;
    });
  });
  new ResizeObserver(draw).observe(canvas.parentElement);
}

/** The table of the operations that took the most time in all calls. */
function listLongest(operations) {
  const totals = new Map();
  for (const { name, dur } of operations) {
    const { calls, total } = totals.get(name) ?? { calls: 0, total: 0 };
    totals.set(name, { calls: calls + 1, total: total + dur });
  }
  const longest = [...totals].sort(([, one], [, other]) => other.total - one.total).slice(0, LISTED);
  const rows = longest.map(([name, { calls, total }]) => {
    const row = element('tr');
    const title = element('td');
    title.append(element('bdi', 'break', name));
    row.append(title, ...[calls.toLocaleString('en'), time(total), time(total / calls)].map((text) => element('td', 'end', text)));
    return row;
  });
  document.getElementById('operations').replaceChildren(...rows);
}

function time(microseconds) {
  return microseconds < 1000 ? `${number(microseconds)} µs` : shortDuration(microseconds / 1e6);
}

function colorOf(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
  return hash % COLORS;
}
