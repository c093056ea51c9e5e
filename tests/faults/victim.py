"""A service that is killed at chosen points, and started again on the same data and the same port."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from service.model.names import TableName
from tests.faults.evidence import Disk, locked
from tests.faults.load import Responses
from tests.faults.points import NotReached, Point, Scene, at_the_swap, stopped
from tests.faults.process import Process, is_stopped
from tests.faults.proxy import Proxy
from tests.harness import Firn, free_port, wait_until

STARTING_S = 4  # longer than a process takes to be there


class RestartedService:
    """One FIRN_HOME on one port, served by one process after another."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.starts = 0
        self.start_process()

    def start_process(self) -> None:
        self.starts += 1
        # Enough that changes of every kind can stand at their commits at once.
        self.process = Process(self.home, self.port, SPARK__SESSIONS="10")

    def wait_until_ready(self) -> None:
        """Serve requests, also if the last test left no process."""
        if self.process.ended:
            self.start_process()
        self.process.wait_until_ready()

    def close(self) -> None:
        self.process.__exit__()


class Victim:
    """A table of a service that is killed and started again, and all responses that the table's clients got."""

    def __init__(self, service: RestartedService, table: TableName) -> None:
        service.wait_until_ready()
        self.disk = Disk(service.home, table)
        self.responses = Responses()
        self._service = service
        self._starts_before = service.starts
        self._first_id = 0

    @property
    def process(self) -> Process:
        return self._service.process

    @property
    def firn(self) -> Firn:
        return self.process.firn

    @property
    def restarts(self) -> int:
        return self._service.starts - self._starts_before

    def proxy(self) -> Proxy:
        return Proxy(self._service.port)

    def first_id(self) -> int:
        """Where the ids of the next clients' records begin."""
        self._first_id += 100_000
        return self._first_id

    def kill_process(self, point: Point, proxy: Proxy) -> str:
        """Kill the service at a point and start it anew; the batch that it was hit with."""
        scene = Scene(self.process, proxy, self.disk)
        try:
            with point.reach(scene) as batch:
                self.kill()
                reached = point.proof(scene, batch)
        finally:
            if self.process.ended:
                self._service.start_process()
        if not reached:
            raise NotReached
        return batch

    def kill_jvm(self, point: Point, proxy: Proxy) -> str:
        """Kill the JVM at a point; the service can do nothing about it until it is seen that this was the point."""
        scene = Scene(self.process, proxy, self.disk)
        with point.reach(scene) as batch, stopped(self.process.id):
            [jvm] = self.process.jvms()
            os.kill(jvm, signal.SIGKILL)
            wait_until(lambda: not self.process.jvms(), 10, every=0.005)
            reached = point.proof(scene, batch)
        if not reached:
            raise NotReached
        return batch

    def outlived_by_its_jvm(self, proxy: Proxy) -> str:
        """Kill the service before its JVM swaps, which it does only after the next service was started."""
        [jvm] = self.process.jvms()
        with locked(self.disk.catalog) as catalog:
            batch = at_the_swap(Scene(self.process, proxy, self.disk))
            with stopped(jvm):
                self.process.kill()
                self.process.firn.client.close()
                catalog.release()
                self._service.start_process()
                time.sleep(STARTING_S)
                assert self.process.health() == 0, "a new service took over while the JVM of the last one lived"
                assert batch not in self.disk.committed()
        return batch

    def kill(self) -> None:
        self.process.kill()
        self.process.firn.client.close()
        for jvm in self.process.jvms():
            if is_stopped(jvm):  # it would never notice that it is alone
                os.kill(jvm, signal.SIGKILL)
        self.process.wait_until_no_jvm(10)

    def send_unheard(self, request: dict[str, Any]) -> None:
        """Send a request that nobody hears the answer of."""

        def post() -> None:
            with suppress(httpx.HTTPError):
                Firn(self.firn.base_url).post(request)

        threading.Thread(target=post, daemon=True).start()

    def start(self) -> None:
        """Serve again; returns when requests are taken, which wait for Spark."""
        self._service.start_process()
        wait_until(lambda: self.process.health() == 200, 60)
