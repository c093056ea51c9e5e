"""`firn compact` and scripts/trigger-compaction.sh: what they send, what they say, and how they exit."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from handlers.compact import Compact
from service.cli import main
from service.cli.connection.remote import Remote
from service.settings import ROOT, load

SCRIPT = ROOT / "scripts" / "trigger-compaction.sh"
STATS = {"files_before": 5, "files_after": 1, "compaction_time_ms": 9}
MERGED = {"success": True, "compacted": True, "stats": STATS}
NOTHING = {"success": True, "compacted": False, "reason": "there are no small files", "stats": STATS}


def failed(code: str, *, retryable: bool = False) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": "no luck", "retryable": retryable}}


def advised(**tables: bool) -> dict[str, Any]:
    known = [
        {"namespace": "shop", "table": t, "recommended": r, "small_files": 7, "reason": "7 small files"}
        for t, r in tables.items()
    ]
    return {"success": True, "recommendations": known}


class Service:
    """Something that answers as Firn does: by operation and table, in turn where there are several answers."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.jobs: dict[str, list[Any]] = {}
        self._keys: dict[str, str] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/database"
                service.asked.append(request)
                self._send(*service.answer(request))

            def do_GET(self) -> None:
                self._send(*service.job(self.path))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        key = request["table"] if request["operation"] == "COMPACT" else request["operation"]
        turns = self.answers.get(key, [MERGED])
        message = turns.pop(0) if len(turns) > 1 else turns[0]
        if isinstance(message, bytes):
            return 200, message
        if request.get("async") and message["success"]:
            # A key has one job.
            job_id = self._keys.setdefault(request["idempotency_key"], f"j{len(self._keys)}")
            self.jobs.setdefault(
                job_id, [{"state": "running"}, message.get("job", {"state": "done", "result": message})]
            )
            if message.get("lost"):
                return 200, b"<html>a proxy is speaking"
            message = {"success": True, "job_id": job_id}
        status = 200 if message["success"] else 503 if message["error"]["retryable"] else 404
        return status, json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def job(self, path: str) -> tuple[int, bytes]:
        turns = self.jobs[path.removeprefix("/jobs/")]
        message = turns.pop(0) if len(turns) > 1 else turns[0]
        if isinstance(message, bytes):
            return 502, message
        return 200, json.dumps({"success": True, "job": {"id": path, **message}}).encode()

    @property
    def compacted(self) -> list[tuple[str, str, str]]:
        asked = [r for r in self.asked if r["operation"] == "COMPACT"]
        return [(r["tenant_id"], r["namespace"], r["table"]) for r in asked]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service()
    monkeypatch.setenv("FIRN_URL", made.url)
    monkeypatch.setenv("FIRN_TENANT", "acme")
    monkeypatch.setattr("service.cli.commands.compact.LONG_PAUSES_S", (0, 0))
    monkeypatch.setattr("service.cli.connection.jobs._FIRST_PAUSE_S", 0)
    yield made
    made.close()


def firn(*arguments: str) -> int:
    """The exit code, also where arguments are wrong."""
    try:
        return main(["compact", *arguments])
    except SystemExit as e:
        return int(e.code or 0)


def test_every_recommended_table_is_compacted_in_the_order_of_the_advice(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"RECOMMEND": [advised(orders=True, people=False, carts=True)], "carts": [NOTHING]}
    assert firn("--all-recommended") == 0
    assert service.compacted == [("acme", "shop", "orders"), ("acme", "shop", "carts")]
    assert capsys.readouterr().out.splitlines() == [
        "shop.orders: 5 files became 1 in 9 ms",
        "shop.carts: nothing to merge: there are no small files",
    ]


def test_the_advice_is_asked_for_of_one_namespace_and_taken_for_one_table(service: Service) -> None:
    service.answers = {"RECOMMEND": [advised(orders=True, carts=True)]}
    assert firn("--all-recommended", "--namespace", "shop", "--table", "carts", "--tenant", "other") == 0
    assert service.asked[0] == {"operation": "RECOMMEND", "tenant_id": "other", "namespace": "shop"}
    assert service.compacted == [("other", "shop", "carts")]


def test_where_no_table_is_worth_it_that_is_said_and_all_is_well(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"RECOMMEND": [advised(orders=False)]}
    assert firn("--all-recommended") == 0
    assert (capsys.readouterr().out, service.compacted) == ("no table is worth compacting\n", [])


def test_a_dry_run_compacts_nothing(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.answers = {"RECOMMEND": [advised(orders=True)]}
    assert firn("--all-recommended", "--dry-run") == 0
    assert firn("--table", "carts", "--dry-run") == 0
    assert service.compacted == []
    assert capsys.readouterr().out.splitlines() == [
        "shop.orders: would be compacted: 7 small files",
        "default.carts: would be compacted",
    ]


def merged(before: int, after: int) -> dict[str, Any]:
    figures = {"files_before": before, "files_after": after, "files_removed": before - after, "compaction_time_ms": 5}
    return {"success": True, "compacted": True, "stats": figures}


def promising(files_after: int) -> dict[str, Any]:
    response = advised(orders=True)
    response["recommendations"][0]["files_after"] = files_after
    return response


def test_it_goes_on_until_a_table_has_as_few_files_as_promised(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [merged(250, 151), merged(151, 52), merged(52, 3), merged(3, 1)]
    service.answers = {"RECOMMEND": [promising(3)], "orders": turns}
    assert firn("--all-recommended", "--json") == 0
    assert len(service.compacted) == 3
    stats = json.loads(capsys.readouterr().out)["stats"]
    assert stats == {"files_before": 250, "files_after": 3, "files_removed": 247, "compaction_time_ms": 15}


def test_it_stops_when_there_is_nothing_more_to_merge(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.answers = {"RECOMMEND": [promising(3)], "orders": [merged(250, 151), NOTHING]}
    assert firn("--all-recommended") == 0
    assert capsys.readouterr().out == "shop.orders: 250 files became 151 in 5 ms\n"


def test_it_stops_when_others_write_files_as_fast_as_it_merges_them(service: Service) -> None:
    service.answers = {"RECOMMEND": [promising(3)], "orders": [merged(250, 151), merged(240, 151)]}
    assert firn("--all-recommended") == 0
    assert len(service.compacted) == 2


OPTIONS = {
    "--force": ("force", True),
    "--target-file-size-mb=64": ("target_file_size_mb", 64),
    "--max-file-size-mb=8": ("max_file_size_mb", 8),
    "--min-files=3": ("min_files", 3),
    "--max-files=50": ("max_files", 50),
    "--partition-filter=day = 5": ("partition_filter", {"expression": "day = 5"}),
    "--compression=zstd": ("compression", "zstd"),
    "--strategy=zorder": ("strategy", "zorder"),
    "--sort-by=a,b": ("sort_by", ["a", "b"]),
    "--rewrite-manifests": ("rewrite_manifests", True),
    "--no-expire-snapshots": ("expire_snapshots", False),
    "--snapshot-retention-hours=7": ("snapshot_retention_hours", 7),
    "--period=2024-01": ("period", "2024-01"),
    "--allow-incomplete": ("allow_incomplete", True),
    "--delete-source": ("delete_source", True),
}


@pytest.mark.parametrize(
    "words", [["compact", "t"], ["table", "compact", "t"], ["compact", "--table", "t"]], ids=" ".join
)
def test_every_option_of_compact_is_one_of_the_command(words: list[str], service: Service) -> None:
    assert main([*words, *OPTIONS]) == 0
    (request,) = service.asked
    assert {name: request[name] for name, _ in OPTIONS.values()} == dict(OPTIONS.values())
    own = {
        "operation",
        "tenant_id",
        "namespace",
        "table",
        "timeout_ms",
        "confirm",
        "async_",
        "dry_run",
        "idempotency_key",
    }
    assert set(Compact.model_fields) - own == {name for name, _ in OPTIONS.values()}


def test_a_table_is_compacted_for_several_tenants(service: Service) -> None:
    assert main(["table", "compact", "shop.t", "--tenant", "a,b"]) == 0
    assert service.compacted == [("a", "shop", "t"), ("b", "shop", "t")]


def test_one_table_that_fails_keeps_no_other_from_its_turn_and_the_exit_code_tells(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"RECOMMEND": [advised(orders=True, carts=True)], "orders": [failed("TABLE_NOT_FOUND")]}
    assert firn("--all-recommended", "--json") == 1
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "tenant_id": "acme",
        "namespace": "shop",
        "table": "orders",
        "success": False,
        "error": {"code": "TABLE_NOT_FOUND", "message": "no luck"},
    }
    assert (second["table"], second["success"], second["compacted"], second["stats"]) == ("carts", True, True, STATS)


def test_what_may_be_sent_again_is(service: Service) -> None:
    service.answers = {"t": [failed("ENGINE_UNAVAILABLE", retryable=True), failed("X", retryable=True), MERGED]}
    assert firn("--table", "t", "--namespace", "n") == 0
    assert service.compacted == [("acme", "n", "t")] * 3


def test_a_refused_recommendation_is_told_and_exits_with_1(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"RECOMMEND": [failed("INVALID_REQUEST")]}
    assert firn("--all-recommended") == 1
    assert capsys.readouterr().err == "firn: the recommendations for acme: INVALID_REQUEST: no luck\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no table is given"),
        (["--namespace", "shop"], "no table is given"),
        (["--table", "t", "--url", "localhost:8080"], "is not the address"),
        (["--table", "t", "--tenat", "x"], "unrecognized arguments"),
    ],
)
def test_a_wrong_call_exits_with_2(
    arguments: list[str], says: str, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert firn(*arguments) == 2
    assert says in capsys.readouterr().err
    assert service.asked == []


@pytest.mark.parametrize(
    ("arguments", "variable", "tenants"),
    [
        ([], None, ["default"]),
        ([], " , ", ["default"]),
        ([], "acme, demo,acme", ["acme", "demo"]),
        (["--tenant", "one", "--tenant", "two,three"], "acme", ["one", "two", "three"]),
    ],
)
def test_it_is_about_the_tenants_that_are_named_or_else_the_default_one(
    arguments: list[str],
    variable: str | None,
    tenants: list[str],
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FIRN_TENANT")
    if variable is not None:
        monkeypatch.setenv("FIRN_TENANT", variable)
    service.answers = {"RECOMMEND": [advised(orders=True)]}
    assert firn("--all-recommended", *arguments) == 0
    assert service.compacted == [(tenant, "shop", "orders") for tenant in tenants]
    several = len(tenants) > 1
    message = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert message == [f"{tenant}.shop.orders" if several else "shop.orders" for tenant in tenants]


def test_a_tenant_whose_recommendations_are_refused_keeps_no_other_from_its_turn(service: Service) -> None:
    service.answers = {"RECOMMEND": [failed("INVALID_REQUEST"), advised(orders=True)]}
    assert firn("--all-recommended", "--tenant", "a b,acme") == 1
    assert service.compacted == [("acme", "shop", "orders")]


def test_each_compaction_is_a_job_that_is_asked_after_and_a_lost_answer_begins_no_second(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"t": [{**MERGED, "lost": True}, MERGED]}
    assert firn("--table", "t") == 0
    assert [request["async"] for request in service.asked] == [True, True]
    assert list(service.jobs) == ["j0"]
    assert capsys.readouterr().out == "default.t: 5 files became 1 in 9 ms\n"


def test_a_job_that_fails_or_is_interrupted_fails_its_table_alone(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"state": "interrupted", "error": {"code": "UNAVAILABLE", "message": "the service ended"}}
    service.answers = {"RECOMMEND": [advised(orders=True, carts=True)], "orders": [{"success": True, "job": ended}]}
    assert firn("--all-recommended") == 1
    assert capsys.readouterr().out.splitlines() == [
        "shop.orders: FAILED: UNAVAILABLE: the service ended",
        "shop.carts: 5 files became 1 in 9 ms",
    ]


def test_a_service_that_is_away_for_a_moment_is_asked_again_and_for_longer_fails_that_table_alone(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = {"RECOMMEND": [advised(a=True, b=True, c=True)], "b": [b"<html>"]}
    service.jobs = {"j0": [b"<html>", {"state": "running"}, {"state": "done", "result": MERGED}]}
    assert firn("--all-recommended") == 1
    assert [line.partition(" in ")[0][:24] for line in capsys.readouterr().out.splitlines()] == [
        "shop.a: 5 files became 1",
        "shop.b: FAILED: UNREACHA",
        "shop.c: 5 files became 1",
    ]


def test_where_no_firn_answers_it_exits_with_3(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    for body in (b"<html>", b"[]", b'{"message": "hello"}'):
        service.answers = {"t": [body], "RECOMMEND": [body]}
        assert firn("--table", "t") == 3
        assert "is not Firn" in capsys.readouterr().err
    assert firn("--all-recommended") == 3, "nobody knows which tables"
    service.close()
    assert firn("--table", "t") == 3
    assert f"no service responds at {service.url}" in capsys.readouterr().err


def test_an_address_may_end_with_a_slash(service: Service) -> None:
    assert Remote(f"{service.url}/").send({"operation": "COMPACT", "table": "t"}) == MERGED


def test_its_variables_keep_no_service_from_starting() -> None:
    load({"FIRN_URL": "http://localhost:8080", "FIRN_TENANT": "acme"})


def test_help_waits_for_no_library() -> None:
    code = "import sys; from service.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'pydantic', 'orjson', 'urllib.request'} & set(sys.modules), sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "compact" in done.stdout


class TestScript:
    """scripts/trigger-compaction.sh, by the plainest shell there is."""

    def run(self, *tables: str, **environ: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "FIRN_URL", "FIRN_TENANT")}
        return subprocess.run(
            ["sh", str(SCRIPT), *tables], capture_output=True, text=True, timeout=60, env={**inherited, **environ}
        )

    def test_each_table_is_compacted_and_has_a_line(self, service: Service) -> None:
        service.answers = {"people": [NOTHING]}
        done = self.run("orders", "shop/people")
        assert (done.returncode, done.stderr) == (0, "")
        assert service.compacted == [("acme", "default", "orders"), ("acme", "shop", "people")]
        lines = [line.partition(": ") for line in done.stdout.splitlines()]
        assert [(name, json.loads(message)) for name, _, message in lines] == [
            ("default/orders", MERGED),
            ("shop/people", NOTHING),
        ]

    def test_one_that_fails_keeps_no_other_from_its_turn(self, service: Service) -> None:
        service.answers = {"orders": [failed("TABLE_NOT_FOUND")]}
        done = self.run("orders", "people")
        assert done.returncode == 1
        assert "default/orders: FAILED" in done.stderr
        assert "TABLE_NOT_FOUND" in done.stderr
        assert done.stdout.startswith("default/people: ")

    def test_a_service_that_is_busy_is_asked_again(self, service: Service, tmp_path: Path) -> None:
        service.answers = {"orders": [failed("TOO_MANY_REQUESTS", retryable=True), MERGED]}
        sleep = tmp_path / "sleep"  # that does not
        sleep.write_text("#!/bin/sh\n")
        sleep.chmod(0o755)
        done = self.run("orders", PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert (done.returncode, len(service.compacted)) == (0, 2), done.stderr

    @pytest.mark.parametrize("tables", [[], ["a b"], ['x","force":true,"y":"'], ["ns/"], ["/t"], ["a/b/c"], ["é"]])
    def test_a_wrong_call_exits_with_2_and_sends_nothing(self, tables: list[str], service: Service) -> None:
        done = self.run("good", *tables) if tables else self.run()
        assert (done.returncode, service.asked) == (2, [])
        assert "usage:" in done.stderr

    def test_a_tenant_must_be_named(self, service: Service) -> None:
        assert self.run("t", FIRN_TENANT="").returncode == 2

    def test_where_no_firn_answers_it_exits_with_3(self, service: Service) -> None:
        service.answers = {"t": [b"<html>"]}
        done = self.run("t")
        assert (done.returncode, "is not Firn" in done.stderr) == (3, True)
        done = self.run("t", FIRN_URL="http://ann:secret@127.0.0.1:1")
        assert (done.returncode, "at http://127.0.0.1:1\n" in done.stderr, "secret" in done.stderr) == (3, True, False)

    def test_lint_finds_nothing(self) -> None:
        lint = Path(sys.executable).with_name("shellcheck")
        done = subprocess.run([str(lint), str(SCRIPT)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "")
