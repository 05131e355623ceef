"""A small application behind the gate and the server, run by tests as a separate program.

Accepts JSON with the arguments ``gate``, ``auth``, ``limits``, ``socketio`` and prints its port.
It exits when standard input is closed.
"""

from digits.cli.main import patch_standard_library

patch_standard_library()

import json  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

sys.modules["aiohttp"] = None  # type: ignore[assignment]  # the client of Engine.IO imports it, a third of the start

import time  # noqa: E402
from pathlib import Path  # noqa: E402

import flask  # noqa: E402
import gevent  # noqa: E402
import jinja2  # noqa: E402
import psutil  # noqa: E402
from flask_socketio import SocketIO  # noqa: E402

from digits.runtime.tensorboards import TensorBoards  # noqa: E402
from digits.web.security.auth import Auth  # noqa: E402
from digits.web.security.gate import Gate  # noqa: E402
from digits.web.security.login import login_blueprint  # noqa: E402
from digits.web.security.sessions import Sessions  # noqa: E402
from digits.web.server.http import serve  # noqa: E402
from digits.web.services import tensorboard  # noqa: E402

logging.basicConfig(level=logging.DEBUG)
arguments = json.loads(sys.argv[1])
app = flask.Flask(__name__)
app.secret_key = "s" * 32
app.jinja_env.loader = jinja2.DictLoader({"login.html": "login"})
auth = Auth(Sessions("k" * 32), port=1, **arguments.get("auth", {}))
app.register_blueprint(login_blueprint(auth))
socketio = SocketIO(app, async_mode="gevent", cors_allowed_origins=[], **arguments.get("socketio", {}))


@app.get("/")
def home() -> str:
    return "home"


@app.get("/static/x.js")
def asset() -> str:
    return "asset"


@app.get("/headers")
def headers() -> dict[str, str]:
    return {name: value for name, value in flask.request.environ.items() if isinstance(value, str)}


@app.post("/length")
def length() -> str:
    return str(len(flask.request.get_data()))


@app.get("/crash")
def crash() -> flask.Response:
    def body():
        yield b"first"
        raise RuntimeError("in the middle of an answer")

    return flask.Response(body())


@app.get("/long")
def long() -> flask.Response:
    return flask.Response(b"x" * 100_000 for _ in range(2000))


@app.get("/hold")
def hold() -> str:
    end = time.thread_time() + float(flask.request.args["seconds"])
    while time.thread_time() < end:
        """Block the event loop."""
    return "held"


@app.get("/memory")
def memory() -> str:
    return str(psutil.Process().memory_info().rss)


@app.get("/connections")
def connections() -> str:
    return str(
        len([item for item in psutil.Process().net_connections("tcp") if item.status == "ESTABLISHED"])
    )


@app.get("/clients")
def clients() -> dict[str, list[int]]:
    return {"queued": [client.queue.qsize() for client in socketio.server.eio.sockets.values()]}


boards = TensorBoards() if "board" not in arguments else TensorBoards(program=Path(arguments["board"]))


@app.route("/pre/tensorboard/<job_id>/", defaults={"path": ""}, methods=["GET", "POST"])
@app.route("/pre/tensorboard/<job_id>/<path:path>", methods=["GET", "POST"])
def board(job_id: str, path: str) -> flask.Response:
    url = f"/pre/tensorboard/{job_id}/"
    return tensorboard.proxy(boards, job_id, Path(arguments["logdir"]), path, flask.request, url)


@socketio.on("echo")
def echo(data: object) -> object:
    return data


@socketio.on("flood")
def flood(count: int, size: int) -> None:
    def send() -> None:
        for _ in range(count):
            socketio.emit("water", "x" * size)
            gevent.sleep(0)
        socketio.emit("dry")

    socketio.start_background_task(send)


app.wsgi_app = Gate(app.wsgi_app, auth=auth, **arguments.get("gate", {}))


def end_with_the_test() -> None:
    gevent.os.tp_read(0, 1)
    boards.stop_all()
    os._exit(0)


gevent.spawn(end_with_the_test)
serve(
    app,
    ("127.0.0.1", 0),
    socketio=socketio,
    on_start=lambda port: os.write(1, f"{port}\n".encode()),
    **arguments.get("limits", {}),
)
