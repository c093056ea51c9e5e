"""Firn as its users run it: a process of its own, reached over HTTP."""

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from bench.place import OURS, ROOT, say

TENANT = "bench"
NAMESPACE = f"{TENANT}__default"
FIELDS = {
    "id": {"type": "long", "required": True},
    "name": {"type": "string"},
    "amount": {"type": "double"},
    "moment": {"type": "timestamp"},
}


class Refused(Exception):
    """The service refused a request that a measurement needs."""


class Client:
    """One connection to a running service."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def close(self) -> None:
        self._connection.close()

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """The response to a request that must succeed."""
        body = json.dumps({"operation": operation, "tenant_id": TENANT, **request}).encode()
        return self.send("/database", body, "application/json")

    def timed(self, operation: str, **request: Any) -> tuple[float, dict[str, Any]]:
        """The milliseconds until the response to such a request, and the response."""
        started = time.perf_counter()
        response = self.call(operation, **request)
        return (time.perf_counter() - started) * 1000, response

    def send(self, path: str, body: bytes, kind: str) -> dict[str, Any]:
        try:
            self._connection.request("POST", path, body, {"Content-Type": kind})
            response = self._connection.getresponse()
            text = response.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            raise
        if response.status != 200:
            raise Refused(f"{path} responded {response.status}: {text[:400].decode(errors='replace')}")
        parsed: dict[str, Any] = json.loads(text)
        return parsed


class Service(Client):
    """`python -m service serve` with its data under `home`; `settings` are FIRN_… variables without the prefix."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.port = free_port()
        self._log = home.with_name(f"{home.name}.log")
        env = environment(home, self.port) | {f"FIRN_{key}": value for key, value in settings.items()}
        with self._log.open("ab") as log:
            command = [str(OURS), "-m", "service", "serve"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        super().__init__(self.port)

    def __enter__(self) -> Self:
        try:
            wait_until_ready(self.port, self.process, self._log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def create(
        self, table: str, fields: dict[str, Any] | None = None, key: list[str] | None = None, **more: Any
    ) -> str:
        """A new table; its name."""
        schema: dict[str, Any] = {"fields": fields or FIELDS}
        self.call("CREATE_TABLE", table=table, schema=schema | ({"primary_key": key} if key else {}), **more)
        return table

    def metadata(self, table: str) -> str:
        """The path of a table's current metadata file, read from the catalog without the service."""
        with closing(sqlite3.connect(self.home / "catalog.db", timeout=30)) as catalog:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            [(found,)] = catalog.execute(query, (NAMESPACE, table)).fetchall()
        return str(found)

    def commits(self, table: str) -> int:
        """How many snapshots a table has had, expired ones included: each takes the next sequence number."""
        metadata = json.loads(Path(urlsplit(self.metadata(table)).path).read_text())
        return int(metadata["last-sequence-number"])

    def settle(self, seconds: float = 10) -> None:
        """Wait until it is nearly idle, so that its background work does not slow a peer."""
        deadline = time.monotonic() + seconds
        before = self.cpu_s()
        while time.monotonic() < deadline:
            time.sleep(0.25)
            now = self.cpu_s()
            if now - before < 0.025:
                return
            before = now

    def cpu_s(self) -> float:
        """The seconds of CPU that it and its JVM have used; 0 if the system does not say."""
        total = 0.0
        for pid in (self.process.pid, *_children(self.process.pid)):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                continue
        return total

    def resident_mib(self) -> float:
        """The MiB of memory that it and its other processes hold; 0 if the system does not say."""
        pages = 0
        for pid in (self.process.pid, *_children(self.process.pid)):
            with suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def repeated(
    service: Service, steps: Sequence[Callable[[Client, int], object]], pause_s: float = 0
) -> Iterator[list[int]]:
    """Do each step again and again during the block, on a connection of its own, with its number from 0. Yields how
    often each was done so far."""
    stop, failures, done = threading.Event(), list[Exception](), [0] * len(steps)

    def repeat(which: int) -> None:
        with closing(Client(service.port)) as own:
            while not stop.wait(pause_s):
                try:
                    steps[which](own, done[which])
                except Exception as e:
                    failures.append(e)
                    return
                done[which] += 1

    threads = [threading.Thread(target=repeat, args=(which,)) for which in range(len(steps))]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def environment(home: Path, port: int) -> dict[str, str]:
    """This process's environment, with the service's settings instead of any others, and without make's variables."""
    gone = ("FIRN_", "MAKE", "MFLAGS", "PART")
    env = {k: v for k, v in os.environ.items() if not k.startswith(gone) or k == "FIRN_CACHE"}
    return env | {"FIRN_HOME": str(home), "FIRN_PORT": str(port)}


def wait_until_ready(port: int, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 180) -> float:
    """The time at which `/ready` first responded 200."""
    deadline = time.monotonic() + seconds
    while not _ready(port):
        if process.poll() is not None or time.monotonic() > deadline:
            say(log.read_text(errors="replace")[-2000:])
            raise Refused("the service did not get ready; its log is above")
        time.sleep(0.02)
    return time.monotonic()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _ready(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except (http.client.HTTPException, OSError):
            return False


def _children(pid: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in listed.read_text().split()]
        except OSError:
            continue
    return found + [grandchild for child in found for grandchild in _children(child)]
