"""A fake TensorBoard that returns each request as JSON; the log folder's name selects its behavior."""

import http.server
import json
import os
import sys
import threading
import time

settings = json.loads(sys.stdin.readline())
behavior = os.path.basename(settings["logdir"])
if behavior == "crashes":
    sys.exit("no module named plugin")
if behavior == "hangs":
    time.sleep(600)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        page = self.path.removeprefix(settings["path_prefix"]).partition("?")[0]
        if page == "/slow":
            time.sleep(600)
        if page == "/die":
            os._exit(1)
        if page.startswith("/move/"):
            self.send_response(302)
            self.send_header(
                "Location", settings["path_prefix"] + "/to" if page == "/move/in" else "http://evil.example/"
            )
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        length = int(self.headers.get("Content-Length") or 0)
        asked = {
            "method": self.command,
            "path": self.path.removeprefix(settings["path_prefix"]),
            "headers": dict(self.headers.items()),
            "body": self.rfile.read(length).decode(),
            "process": os.getpid(),
        }
        answer = b"x" * 5_000_000 if page == "/large" else json.dumps(asked).encode()
        self.send_response(200)
        self.send_header(
            "Content-Type", "application/octet-stream" if page == "/large" else "application/json"
        )
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def do_POST(self):
        self.do_GET()

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdout.write(f"a warning\nanswers on port {server.server_port}\n")
sys.stdout.flush()
sys.stdin.read()
os._exit(0)
