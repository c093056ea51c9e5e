"""What docs/reference/maintenance.md shows works: the schedule, the cron line, the script and EventBridge's events."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from handlers import discover
from service.api import events
from service.jobs.schedules.times import ScheduleTiming, check_timing
from service.model import wire
from service.model.call import Call
from service.settings import ROOT
from tests.contract.entry_points import status_and_body
from tests.harness import Firn

TEXT = (ROOT / "docs" / "reference" / "maintenance.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
URL = "http://localhost:8080"


def block(language: str, holds: str) -> str:
    """The one block of the document in a language that holds something."""
    [found] = [text for kind, text in BLOCKS if kind == language and holds in text]
    assert isinstance(found, str)
    return found


def make(firn: Firn, tenant: str, *tables: str) -> None:
    """Tables of four small files each, by namespace/table."""
    for name in tables:
        namespace, _, table = name.rpartition("/")
        address = {"tenant_id": tenant, "namespace": namespace or "default", "table": table}
        firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
        for i in range(4):
            firn.ok({"operation": "WRITE", **address, "records": [{"id": i}]})


def files(firn: Firn, tenant: str, name: str) -> int:
    namespace, _, table = name.rpartition("/")
    request = {"operation": "DESCRIBE_TABLE", "tenant_id": tenant, "namespace": namespace or "default", "table": table}
    return int(firn.ok(request)["description"]["file_count"])


def shell(script: str, url: str, tenant: str) -> subprocess.CompletedProcess[str]:
    """A documented command, about this service and this tenant."""
    assert URL in script
    assert "FIRN_TENANT=demo" in script
    script = script.replace(URL, url).replace("FIRN_TENANT=demo", f"FIRN_TENANT={tenant}")
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, cwd=ROOT)


@pytest.fixture
def advising(firn: Firn, tenant: str) -> Iterator[str]:
    """The address of the service; where it gives no advice itself, of one before it that does."""
    if "RECOMMEND" in {operation.name for operation in discover()}:
        yield firn.base_url
        return

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = json.loads(body)
            if request["operation"] == "RECOMMEND":
                known = [{"namespace": "default", "table": t, "recommended": t != "new", "reason": t} for t in TABLES]
                status, said = 200, json.dumps({"success": True, "recommendations": known}).encode()
            else:
                answer = httpx.post(f"{firn.base_url}{self.path}", content=body, timeout=120)
                status, said = answer.status_code, answer.content
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


TABLES = ("people", "orders", "new")


def test_the_schedule_is_one_that_is_taken(firn: Firn, tenant: str) -> None:
    request = {**json.loads(block("json", "CREATE_SCHEDULE")), "tenant_id": tenant}
    answer = firn.ok(request)
    assert (answer["schedule_created"], answer["scope"]) == (True, "namespace")
    firn.ok({"operation": "DELETE_SCHEDULE", "tenant_id": tenant, "name": request["name"]})


def test_the_line_for_cron_compacts_what_is_recommended(firn: Firn, tenant: str, advising: str) -> None:
    make(firn, tenant, "people", "orders")
    schema = {"fields": {"id": {"type": "long"}}}
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "new", "schema": schema})
    line = block("cron", "firn compact").strip()
    times, command = line.split("  ", 1)
    check_timing(ScheduleTiming(times), datetime.now(UTC))
    command = command.replace(" firn ", f" {sys.executable} -m service ").replace("logger -t firn", "cat")
    assert " -m service compact --all-recommended" in command
    done = shell(command, advising, tenant)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert [line.partition(" in ")[0] for line in sorted(done.stdout.splitlines())] == [
        "default.orders: 4 files became 1",
        "default.people: 4 files became 1",
    ]
    assert [files(firn, tenant, name) for name in ("people", "orders")] == [1, 1]


def test_a_dry_run_of_the_command_compacts_nothing(firn: Firn, tenant: str, advising: str) -> None:
    make(firn, tenant, "people")
    command = [sys.executable, "-m", "service", "compact", "--table", "people", "--url", advising, "--tenant", tenant]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRN_")}
    for more in (["--all-recommended", "--dry-run"], ["--dry-run"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("default.people: would be compacted")
    assert files(firn, tenant, "people") == 4
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)
    assert json.loads(done.stdout)["stats"]["files_after"] == 1
    missing = [*command[:-2], "--tenant", f"{tenant}-x"]
    done = subprocess.run(missing, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)
    assert (done.returncode, "TABLE_NOT_FOUND" in done.stdout) == (1, True)


@pytest.mark.thorough
def test_the_script_compacts_the_tables_that_are_named(firn: Firn, tenant: str) -> None:
    make(firn, tenant, "people", "shop/orders")
    done = shell(block("bash", "trigger-compaction.sh"), firn.base_url, tenant)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(said) == ["default/people", "shop/orders"]
    assert all(wire.parse(answer)["compacted"] for answer in said.values())
    assert [files(firn, tenant, name) for name in ("people", "shop/orders")] == [1, 1]
    done = shell(block("bash", "trigger-compaction.sh").replace("people", "poeple"), firn.base_url, tenant)
    assert (done.returncode, "TABLE_NOT_FOUND" in done.stderr) == (1, True)
    assert done.stdout.startswith("shop/orders: ")


def test_the_constant_input_of_a_rule_compacts(firn: Firn, tenant: str) -> None:
    make(firn, tenant, "people")
    [target] = json.loads(block("json", '"Input"'))
    event = json.loads(target["Input"].replace('"demo"', f'"{tenant}"'))
    status, answer = status_and_body(
        wire.parse(asyncio.run(events.respond(json.dumps(event), firn.app.pipeline, Call("in-process"))))
    )
    assert (status, answer["compacted"], files(firn, tenant, "people")) == (200, True, 1)


def test_a_scheduled_event_with_all_of_eventbridges_fields_compacts(firn: Firn, tenant: str) -> None:
    make(firn, tenant, "people")
    event = json.loads(block("json", '"detail-type"').replace('"demo"', f'"{tenant}"'))
    assert event["detail-type"] == "Scheduled Event"
    status, answer = status_and_body(firn.event(event))
    assert (status, answer["compacted"], files(firn, tenant, "people")) == (200, True, 1)
    status, answer = status_and_body(firn.event({**event, "detail": {}}))
    assert (status, answer["error"]["field"]) == (400, "detail")
    assert "constant input" in answer["error"]["message"]
    status, answer = status_and_body(firn.event({**event, "detail": {**event["detail"], "table": "poeple"}}))
    assert (status, answer["error"]["code"], answer["error"]["suggestion"]) == (404, "TABLE_NOT_FOUND", "people")


def test_the_service_is_not_reached_where_none_is(tenant: str) -> None:
    done = shell(block("bash", "trigger-compaction.sh"), "http://127.0.0.1:1", tenant)
    assert done.returncode == 3
