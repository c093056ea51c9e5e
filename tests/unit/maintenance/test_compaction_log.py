"""Compactions are listed newest first, by table, namespace or tenant, page by page, and forgotten after 90 days."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handlers.compaction_log import CompactionLog, compaction_log
from service.app import App
from service.catalog.tables import Catalog
from service.errors import InvalidRequest, TableNotFound
from service.guard.policies import Policies
from service.jobs.jobs import DAY_MS, Jobs
from service.ledger.jobs import JobRecord, JobRecords
from service.model import wire
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.settings import load
from tests.fakes import FakeCatalog, MuteLedger
from tests.jobs import compaction, jobs_on

ORDERS, LOGS = TableName("acme", "shop", "orders"), TableName("acme", "ops", "logs")
OTHERS = TableName("other", "shop", "orders")
T0 = 1_714_557_600_000  # 2024-05-01T10:00:00Z


@dataclass
class Place:
    """As much of the service as COMPACTION_LOG needs."""

    ledger: MuteLedger
    jobs: Jobs
    catalog: Catalog

    def note(self, id: str, table: TableName = ORDERS, at: int = T0, **details: Any) -> JobRecord:
        details = {"request": {"force": False}, **details}
        return compaction(self.jobs.records, id, table, "uuid", at, requested_by=f"request {id}", details=details)

    def end(self, job: JobRecord, state: str, at: int, **details: Any) -> None:
        ended = replace(job, state=state, ended_ms=at, details={**job.details, **details})
        self.jobs.records.end(ended)

    def ask(self, **fields: Any) -> dict[str, Any]:
        request = CompactionLog.model_validate({"operation": "COMPACTION_LOG", "tenant_id": "acme", **fields})
        result = compaction_log.handler(request, Call("r"), self.catalog, Policies(self.catalog), self.jobs.records)
        answer: dict[str, Any] = wire.parse(wire.render(result))
        return answer

    def ids(self, **fields: Any) -> list[str]:
        return [entry["id"] for entry in self.ask(**fields)["compactions"]]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    catalog = FakeCatalog()
    for name in (ORDERS, LOGS, OTHERS):
        catalog.create(name, parse_schema({"fields": {"id": {"type": "long"}}}), (), {})
    yield Place(ledger, jobs_on(ledger), catalog.as_catalog)
    ledger.close()


def test_an_entry_says_when_who_and_what_came_of_it(place: Place) -> None:
    job = place.note("c1", predicted={"compaction_ms": 900})
    (running,) = place.ask(scope="tenant")["compactions"]
    assert (running["state"], running.keys() & {"ended_at", "stats", "error"}) == ("running", set())
    place.end(job, "done", T0 + 1500, stats={"files_before": 3, "files_after": 1})
    assert place.ask(scope="tenant")["compactions"] == [
        {
            "id": "c1",
            "namespace": "shop",
            "table": "orders",
            "requested_by": "request c1",
            "state": "done",
            "started_at": "2024-05-01T10:00:00Z",
            "ended_at": "2024-05-01T10:00:01.500000Z",
            "request": {"force": False},
            "stats": {"files_before": 3, "files_after": 1},
            "predicted": {"compaction_ms": 900},
        }
    ]


def test_an_error_may_be_json_or_words(place: Place) -> None:
    place.end(place.note("c1", at=T0), "failed", T0, error={"code": "COMMIT_CONFLICT"})
    place.end(place.note("c2", at=T0 + 1), "failed", T0, error="it broke")
    assert [e["error"] for e in place.ask(scope="tenant")["compactions"]] == ["it broke", {"code": "COMMIT_CONFLICT"}]


def test_a_table_a_namespace_or_all_of_the_tenant_and_never_anothers(place: Place) -> None:
    place.note("orders", ORDERS, T0)
    place.note("logs", LOGS, T0 + 1)
    place.note("theirs", OTHERS, T0 + 2)
    assert place.ids(scope="tenant") == ["logs", "orders"]
    assert place.ids(namespace="shop") == ["orders"]
    assert place.ids() == place.ids(namespace="default") == []
    assert place.ids(namespace="ops", table="logs") == ["logs"]
    assert place.ids(scope="tenant", table=None) == ["logs", "orders"]
    with pytest.raises(InvalidRequest, match="namespace contradicts scope"):
        place.ids(scope="tenant", namespace="shop")
    with pytest.raises(InvalidRequest, match="table contradicts scope"):
        place.ids(scope="tenant", table="orders")


def test_pages_follow_one_another_without_a_gap_also_where_some_began_at_the_same_moment(place: Place) -> None:
    for i in range(8):
        place.note(f"c{i}", at=T0 + i // 5)
    every = ["c5", "c6", "c7", "c0", "c1", "c2", "c3", "c4"]
    found: list[str] = []
    page = place.ask(scope="tenant", limit=3)
    while True:
        found += [entry["id"] for entry in page["compactions"]]
        if "next_cursor" not in page:
            break
        page = place.ask(scope="tenant", limit=3, cursor=page["next_cursor"])
    assert found == every


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("2024-05-01T10:00:00Z", []),
        ("2024-05-01T10:00:00.000001Z", ["c1"]),
        ("2024-05-01T10:00:00.002", ["c2", "c1"]),
        ("2024-05-01T12:00:00.001+02:00", ["c1"]),
        ("1969-12-31", []),
    ],
)
def test_before_is_exact_and_in_utc_where_it_has_no_offset(place: Place, before: str, found: list[str]) -> None:
    place.note("c1", at=T0)
    place.note("c2", at=T0 + 1)
    assert place.ids(scope="tenant", before=before) == found


@pytest.mark.parametrize("before", ["yesterday", "", "0001-01-01T00:00:00+23:00x"])
def test_what_is_no_time_is_refused(place: Place, before: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        place.ask(before=before)
    assert refused.value.field == "before"


def test_a_dropped_tables_history_stays_and_a_misspelt_name_is_told(place: Place) -> None:
    place.note("c1", ORDERS)
    place.catalog.drop(place.catalog.load(ORDERS), purge=False)
    assert place.ids(namespace="shop", table="orders") == ["c1"]
    assert place.ids(namespace="ops", table="logs") == []
    with pytest.raises(TableNotFound) as refused:
        place.ask(namespace="ops", table="lgos")
    assert refused.value.suggestion == "logs"


def test_old_ones_are_deleted_and_those_in_progress_are_not(place: Place) -> None:
    for i, ended in enumerate((T0, T0 + 1, None)):
        job = place.note(f"c{i}")
        if ended is not None:
            place.end(job, "done", ended)
    place.jobs.records.forget({"COMPACT": 90 * DAY_MS}, DAY_MS, T0 + 1 + 90 * DAY_MS)
    assert sorted(place.ids(scope="tenant")) == ["c1", "c2"]


def test_a_start_notes_what_the_process_before_left_and_forgets_what_is_old(tmp_path: Path) -> None:
    def states(*, recover: bool) -> dict[str, str]:
        app = App(load({"FIRN_HOME": str(tmp_path / "home")}), [])
        try:
            records = app.parts[JobRecords]
            if recover:
                app.parts[Jobs].recover()
            else:
                left = compaction(records, "left", ORDERS, "uuid", T0)
                old = compaction(records, "old", ORDERS, "uuid", T0)
                records.end(replace(old, state="done", ended_ms=T0))
                assert records.holds(left)
            return {job.id: job.state for job in records.log("COMPACT", 5)}
        finally:
            app.stop()

    assert states(recover=False) == {"left": "running", "old": "done"}
    assert states(recover=True) == {"left": "interrupted"}
