// The only module that uses the socket. It dispatches messages as events on the document:
//   job-update, task-update   detail: the message
//   live-joined               detail: {room, missed}; if `missed`, the page is older than the latest message
// Messages contain data, never markup.

import { io } from '../vendor/socket.io.js';
import { liveCursor, urlPrefix } from './http.js';

const rooms = new Set();
let socket = null;

function connect() {
  socket = io('/jobs', { path: `${urlPrefix}/socket.io`, reconnectionDelay: 500, reconnectionDelayMax: 5000 });
  socket.on('connect', () => {
    showConnection(true);
    for (const room of rooms) enter(room);
  });
  socket.on('disconnect', (reason) => {
    if (reason !== 'io client disconnect') showConnection(false);
  });
  socket.on('connect_error', () => showConnection(false));
  socket.on('job update', (message) => send('job-update', message));
  socket.on('task update', (message) => send('task-update', message));
  socket.on('storage', ({ problem }) => showStorageProblem(problem));
}

function enter(room) {
  socket.emit('join', { room, cursor: liveCursor() }, ({ missed, storage_problem: problem }) => {
    showStorageProblem(problem);
    send('live-joined', { room, missed });
  });
}

/** Joins the room of a job's id or `job_management`; rejoins automatically after a lost connection. */
export function join(room) {
  if (rooms.has(room)) return;
  rooms.add(room);
  if (!socket) connect();
  else if (socket.connected) enter(room);
}

function send(name, detail) {
  document.dispatchEvent(new CustomEvent(name, { detail }));
}

/** Shows the error that keeps the server from saving jobs, as base.html does when the page is loaded. */
function showStorageProblem(problem) {
  const notice = document.getElementById('storage-problem');
  notice.hidden = !problem;
  notice.querySelector('[data-message]').textContent = problem?.message ?? '';
  notice.querySelector('[data-hint]').textContent = problem?.hint ?? '';
}

function showConnection(connected) {
  const note = document.getElementById('connection');
  if (note) note.hidden = connected;
}
