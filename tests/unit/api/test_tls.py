"""With a certificate the server speaks HTTPS, and nothing else."""

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import uvicorn

from service.api import http
from service.api.server import Server
from service.settings import load
from tests.harness import wait_until
from tests.unit.host.test_exposure import write_certificate

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def page(scope: Any, _: Any, send: Any) -> None:
    if scope["type"] == "http":
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": scope["scheme"].encode()[:2]})


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def test_the_files_of_the_settings_are_those_of_the_server(tmp_path: Path) -> None:
    certificate, key, _ = write_certificate(tmp_path)
    settings = load({"FIRN_TLS__CERTIFICATE": str(certificate), "FIRN_TLS__KEY": str(key), "FIRN_HOME": str(tmp_path)})
    config: Any = uvicorn.Config(page, "127.0.0.1", 0, log_config=None, interface="asgi3", **http.tls(settings))
    server = Server(config, lambda: None)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, 30, every=0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        trusted = ssl.create_default_context(cafile=str(certificate))
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        with trusted.wrap_socket(connection, server_hostname="localhost") as encrypted:
            encrypted.sendall(ASK)
            assert encrypted.recv(1000).startswith(b"HTTP/1.1 200 OK")
            assert encrypted.version() in ("TLSv1.2", "TLSv1.3")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(ASK)
            assert not _received(plain).startswith(b"HTTP/")
    finally:
        server.should_exit = True
        thread.join(30)
    assert http.tls(load({"FIRN_HOME": str(tmp_path)})) == {}
