"""A service's life in a process of its own: started, stopped, killed and started again on the same data."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.settings import ROOT
from tests.faults.load import Load, Responses
from tests.faults.process import Process
from tests.harness import Firn, free_port, wait_until
from tests.support.marks import thorough_after

ADDRESS = {"tenant_id": "life", "table": "kept"}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}


def ids(firn: Firn) -> Counter[int]:
    return Counter(row["id"] for row in firn.rows("life", "kept", projection=["id"]))


@pytest.mark.timeout(420)
@pytest.mark.parametrize("every_end", thorough_after(1, [False, True]), ids=["stop", "every end"])
def test_acknowledged_rows_survive_every_end_and_no_jvm_is_left(tmp_path: Path, every_end: bool) -> None:
    """Stopped gently, killed at work, killed while starting: each start finds every acknowledged row, once.

    What is there after a kill, tests/faults/test_kills.py shows as well.
    """
    home = tmp_path / "home"
    everything = Responses()

    with Process(home, SPARK__WARM_UP="true") as first:
        answers_while_it_warms(first)
        refuses_a_second_owner(home)
        first.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
        is_found_by_commands(home)
        logs_no_stack_trace_of_cancelled_work(first)
        logs_an_upload_that_its_client_aborts(first)
        everything.add(finishes_what_is_under_way_on_sigterm(first))
        assert first.jvms() == []

    with Process(home) as second:
        second.wait_until_ready()
        everything.check(ids(second.firn))
        everything.add(leaves_no_jvm_when_killed_at_work(second))
    if not every_end:
        return

    with Process(home, SPARK__WARM_UP="true") as third:
        leaves_no_jvm_when_killed_while_starting(third)

    with Process(home) as fourth:
        fourth.wait_until_ready()
        everything.check(ids(fourth.firn))
        everything.add(outlives_its_jvm(fourth, everything))
        fourth.terminate()
        assert fourth.exit_code(30) == 0
        assert fourth.jvms() == []


def answers_while_it_warms(process: Process) -> None:
    """/health answers long before /ready does, which says 503 until Spark is warm."""
    wait_until(lambda: process.health() == 200, 20)
    ready = process.firn.client.get("/ready")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "state": "starting"})
    slowest = 0.0
    while not process.ready():
        began = time.monotonic()
        assert process.health() == 200
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.2)
    assert slowest < 5, f"/health took {slowest:.1f} s while Spark started"


def refuses_a_second_owner(home: Path) -> None:
    """A second process on one FIRN_HOME says so in one line and ends with 1."""
    env = {**os.environ, "FIRN_HOME": str(home), "FIRN_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-m", "service", "serve"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"FIRN_HOME {home} is in use by process" in done.stderr


def is_found_by_commands(home: Path) -> None:
    """A command about this home asks the service that was started by hand, and does not end it afterwards."""
    env = {**os.environ, "FIRN_HOME": str(home), "FIRN_TENANT": "life"}
    command = [sys.executable, "-m", "service", "table", "list"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done


def logs_no_stack_trace_of_cancelled_work(process: Process) -> None:
    """A job whose tasks run when it is cancelled ends as cancelled, and leaves no trace in the log."""
    address = {"tenant_id": "life", "table": "cancelled"}
    process.firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA})
    body = "".join(f'{{"id": {i}, "payload": "{i}"}}\n' for i in range(100_000))
    path, kind = "/tables/life/default/cancelled/records", {"Content-Type": "application/x-ndjson"}
    assert process.firn.client.post(path, content=body, headers=kind, timeout=60).status_code == 200
    buckets = {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 64}]}
    request = {"operation": "REPARTITION", **address, "partition": buckets, "async": True}
    job = process.firn.parsed(process.firn.send(request))["job_id"]

    def described() -> Any:
        return process.firn.client.get(f"/jobs/{job}").json()["job"]

    wait_until(lambda: described()["progress"]["phase"] == "rewriting", 60, every=0.02)
    process.firn.client.delete(f"/jobs/{job}")
    wait_until(lambda: described()["state"] not in ("queued", "running"), 60, every=0.02)
    assert described()["state"] == "cancelled"
    assert "\tat " not in process.log


def logs_an_upload_that_its_client_aborts(process: Process) -> None:
    head = (
        "POST /tables/life/default/kept/records HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: 99\r\n"
    )
    with socket.create_connection(("127.0.0.1", process.port)) as client:
        client.sendall(f"{head}\r\nid,payload\n1,".encode())
    wait_until(lambda: "a bulk load of life.default.kept was aborted" in process.log, 30)


def finishes_what_is_under_way_on_sigterm(process: Process) -> Responses:
    """What was accepted is answered, what comes later is refused, and the process ends with 0 within 30 s."""
    with Load(process.firn, ADDRESS, clients=8) as load:
        load.wait_for(20, 60)
        process.terminate()
        stopping = time.monotonic()
        code = process.exit_code(40)
        took = time.monotonic() - stopping
        responses = load.stop()
    assert code == 0, process.log[-3000:]
    assert took < 30, f"it took {took:.1f} s to stop"
    assert not responses.unknown, "a request was accepted and never answered"
    assert set(responses.refused.values()) <= {"SHUTTING_DOWN", "NO_CONNECTION"}, Counter(responses.refused.values())
    assert responses.refused, "no request came after the signal"
    return responses


def leaves_no_jvm_when_killed_at_work(process: Process) -> Responses:
    assert len(process.jvms()) == 1
    with Load(process.firn, ADDRESS, clients=8, first_id=1_000_000) as load:
        load.wait_for(20, 60)
        process.kill()
        responses = load.stop()
    process.wait_until_no_jvm(10)
    return responses


def leaves_no_jvm_when_killed_while_starting(process: Process) -> None:
    wait_until(process.jvms, 30, every=0.02)
    process.kill()
    process.wait_until_no_jvm(10)


def outlives_its_jvm(process: Process, before: Responses) -> Responses:
    """Spark's JVM is killed under load: the service says so, starts another, and keeps what it promised."""
    [jvm] = process.jvms()
    with Load(process.firn, ADDRESS, clients=8, first_id=2_000_000) as load:
        load.wait_for(20, 60)
        os.kill(jvm, signal.SIGKILL)
        wait_until(lambda: not process.ready(), 60, every=0.02)
        assert process.health() == 200
        process.wait_until_ready(60)
        load.wait_for(20, 60)
        responses = load.stop()
    [another] = process.jvms()
    assert another != jvm
    assert set(responses.refused.values()) <= {"ENGINE_UNAVAILABLE"}, Counter(responses.refused.values())
    both = Responses(
        before.acknowledged | responses.acknowledged,
        before.refused | responses.refused,
        before.unknown | responses.unknown,
    )
    both.check(ids(process.firn))
    return responses
