"""A fake of `firn serve --background` for tests without Spark: it owns a home and responds on its socket.

It is started as the service is. The variable FAKE_SERVICE says how it behaves: `slow` is ready late, `broken` ends
with a line on stderr.
"""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from service.host import presence
from service.settings import load

READY_AT = time.monotonic() + (0.5 if os.environ.get("FAKE_SERVICE") == "slow" else 0)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send({"ready": time.monotonic() > READY_AT})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key")
        answer: dict[str, Any] = {"success": True, "tables": [str(os.getpid()), str(key)], "asked": request}
        if request["namespace"] == "dying":
            os.kill(os.getpid(), signal.SIGKILL)
        if request["namespace"] == "ending":
            presence.withdraw(load(os.environ).home)
            answer = {"success": False, "error": {"code": "SHUTTING_DOWN", "message": "it ends", "retryable": True}}
            threading.Timer(0.2, os._exit, (0,)).start()
        self._send(answer)

    def _send(self, answer: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer, separators=(",", ":")).encode())

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


def main() -> None:
    assert sys.argv[1:3] == ["serve", "--background"], sys.argv
    if os.environ.get("FAKE_SERVICE") == "broken":
        sys.exit("firn: Java is missing; install Java 17")
    settings = load(os.environ)
    with (settings.home / "started").open("a") as started:
        started.write(f"{os.getpid()}\n")
    with (settings.home / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server = Server("", Handler, bind_and_activate=False)
        server.socket.close()
        server.socket = presence.announce(settings, background=True, log=sys.argv[3])
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        server.serve_forever()


if __name__ == "__main__":
    assert Path.cwd() == load(os.environ).home
    main()
