"""`firn schedule run`: a run is followed to its end, and its exit code says how it went."""

import json
from typing import Any

import pytest

from tests.cli import Called
from tests.unit.cli.test_commands import firn

FAILURE = {"namespace": "shop", "table": "b", "state": "failed", "error": {"message": "no luck"}}


def run(state: str = "running", **more: Any) -> dict[str, Any]:
    figures = {"tables": 2, "done": 0, "failed": 0, "skipped": 0, "outcomes": []}
    ended = {} if state in ("running", "interrupted") else {"ended_at": "2026-03-01T10:00:00Z"}
    return {"job_id": "r1", "state": state, **ended, **figures, **more}


class Service:
    """Begins a run, or has one under way, and tells at each look how it stands then; None: the schedule is gone."""

    def __init__(self, *looks: Any, started: bool = True) -> None:
        self.looks = list(looks)
        self.started = started
        self.asked: list[dict[str, Any]] = []
        self.jobs: list[str] = []

    def send(self, request: dict[str, Any], key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(request)
        if request["operation"] == "RUN_SCHEDULE":
            tables = [{"namespace": "shop", "table": name} for name in "ab"]
            return {
                "success": True,
                "started": self.started,
                "job_id": "r1",
                "status_url": "/jobs/r1",
                "tables": tables,
            }
        raise AssertionError(request)

    def job(self, job_id: str) -> dict[str, Any]:
        self.jobs.append(job_id)
        look = self.looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        if look is None:
            return {"success": False, "error": {"code": "NOT_FOUND", "message": "there is no job 'r1'"}}
        result = {"result": {"success": True, "started": True, "run": look}} if "ended_at" in look else {}
        return {"success": True, "job": {"id": job_id, "state": look["state"], "progress": look, **result}}

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.connection.jobs._FIRST_PAUSE_S", 0)


def ran(service: Service, *options: str) -> Called:
    return firn(["schedule", "run", "nightly", *options], service)


@pytest.mark.parametrize("started", [True, False])
def test_a_run_is_followed_to_its_end_whoever_began_it_and_no_connection_waits_for_it(started: bool) -> None:
    service = Service(run(), run("interrupted"), run("done", done=2), started=started)
    assert ran(service) == Called(0, "done: 2 done, 0 failed, 0 skipped\n", "")
    assert service.asked == [{"operation": "RUN_SCHEDULE", "tenant_id": "default", "name": "nightly", "wait": False}]
    assert service.jobs == ["r1"] * 3


@pytest.mark.parametrize(
    ("ended", "shown"),
    [
        (
            run("partly", done=1, failed=1, outcomes=[FAILURE]),
            "partly: 1 done, 1 failed, 0 skipped\n  shop.b: failed: no luck\n",
        ),
        (run("failed", failed=2), "failed: 0 done, 2 failed, 0 skipped\n"),
        (run("failed", error="no catalog"), "failed: 0 done, 0 failed, 0 skipped\n  no catalog\n"),
    ],
)
def test_a_run_that_did_not_go_well_exits_with_1_and_says_why(ended: dict[str, Any], shown: str) -> None:
    assert ran(Service(ended)) == Called(1, shown, "")
    done = ran(Service(ended), "--json")
    assert (done.code, json.loads(done.out)["run"]) == (1, ended)


def test_a_run_whose_schedule_is_deleted_meanwhile_has_failed() -> None:
    assert ran(Service(run(), None)) == Called(
        1, "", "firn: SCHEDULE_NOT_FOUND: the schedule nightly was deleted during this run\n"
    )


@pytest.mark.parametrize(("started", "shown"), [(True, "started: 2 tables\n"), (False, "already running: 2 tables\n")])
def test_who_does_not_wait_is_told_that_it_began(started: bool, shown: str) -> None:
    service = Service(started=started)
    assert ran(service, "--no-wait") == Called(0, shown, "")
    assert len(service.asked) == 1


def test_who_is_interrupted_is_told_that_the_run_goes_on() -> None:
    done = ran(Service(run(), KeyboardInterrupt()))
    assert (done.code, done.out) == (130, "")
    assert done.err == "firn: job r1 continues if a service runs; `firn job cancel r1` cancels it\n"
