"""Clients that hang up: no library closes a connection in the middle of a request."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from service.model import wire
from tests.harness import Firn, wait_until


@contextmanager
def waiting(firn: Firn, request: dict[str, Any], accept: str = "application/json") -> Iterator[socket.socket]:
    """A client that waits for its response, and hangs up at the end of the block."""
    body, url = wire.render(request), firn.client.base_url
    head = f"POST /database HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n"
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        yield connection


@contextmanager
def computing(firn: Firn, request: dict[str, Any], accept: str = "application/json") -> Iterator[socket.socket]:
    """A client that hangs up while Spark computes its query, which takes minutes; the block begins once Spark does."""
    before = active_stages()
    # The tables to join with are collected in stages of their own, which end soon.
    last: set[int] = set()

    def computes() -> bool:
        nonlocal last
        earlier, last = last, active_stages() - before
        return bool(earlier & last)

    with waiting(firn, request, accept) as connection:
        wait_until(computes, 60, every=0.2)
        yield connection


def active_stages() -> set[int]:
    """The stages that Spark runs now."""
    assert SparkContext._active_spark_context
    return set(SparkContext._active_spark_context.statusTracker().getActiveStageIds())
