"""Serve one function over HTTP: it gets a path and gives `(content type, body)`, or None for what is not there.

Listens on `PORT`, answers `/healthz`, and ends on SIGTERM after the requests that are under way.
"""

import os
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[str], tuple[str, str] | None]


class Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for the requests that are under way
    request_queue_size = 64


def handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that sends nothing holds the end up for no longer

        def do_GET(self) -> None:
            found = ("text/plain", "ok\n") if self.path == "/healthz" else answer(self.path)
            status = 200 if found else 404
            content_type, body = found or ("text/plain", "not here\n")
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{content_type}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def serve(answer: Answer) -> None:
    address = (os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"]))
    with Server(address, handler(answer)) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.05)
