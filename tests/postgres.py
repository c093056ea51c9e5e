"""A PostgreSQL server for tests: a real one, on this machine's loopback, in a folder of its own."""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.harness import free_port

USER = "firn"
# Every kind of character that an address has to spell otherwise.
PASSWORD = "s3:cr/t@ %+?#"
_START_S = 30
_STOP_S = 20


class PostgresServer:
    """Runs from the moment it is made until it is stopped; a test fails where there is none to run."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._as = _account()
        self._numbers = itertools.count(1)
        self._folder = Path(tempfile.mkdtemp(prefix="firn-postgres-"))
        self._server: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        try:
            self._make()
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> "PostgresServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, database: str) -> str:
        """The address of a new, empty database whose name begins so."""
        name = f"{database}_{next(self._numbers)}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]  # no literal
        return self.address(name)

    def address(self, database: str) -> str:
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, also again on what it kept; returns when it takes connections."""
        with (self._folder / "log").open("ab") as log:
            command = [self._programs / "postgres", "-D", self._folder / "data"]
            self._server = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.address("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError as e:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {e}\n{self.log[-2000:]}") from e
            time.sleep(0.05)

    def halt(self, *, at_once: bool = False) -> None:
        """End the server but keep its data; `at_once` as a crash would."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def stop(self) -> None:
        """End the server and remove all it wrote, which it need not tidy before."""
        self.halt(at_once=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._as:
            for path in (self._folder, secret):
                os.chown(path, self._as["user"], self._as["group"])
        data = self._folder / "data"
        command = [self._programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}"]
        # Only what initdb itself writes is not forced to disk; the server forces what it commits.
        command += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, **self._as)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(f"listen_addresses = '127.0.0.1'\nport = {self.port}\n")
            conf.write(f"unix_socket_directories = '{self._folder}'\n")


def _programs() -> Path:
    """The folder with the server's programs: Debian keeps them off PATH, one folder for each version."""
    folders = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    versions = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if p.parent.name.isdigit()]
    folders += sorted(versions, key=lambda p: int(p.parent.name), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    pytest.fail(
        "PostgreSQL's server is missing, which this test starts; install it (Debian: apt-get install postgresql)",
        pytrace=False,
    )


def _account() -> dict[str, Any]:
    """Who the server runs as, for subprocess: it refuses to run as root."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
