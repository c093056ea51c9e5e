"""REPLAY: quarantined rows run through corrected rules, without their files; nothing is counted twice."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from service.ingest.publish import StagedIngest
from service.ingest.tasks.replay import ReplayPublication, Replays
from tests.harness import Firn, wait_until
from tests.support.ingesting import COLUMNS, HEADER, IngestedTable, row

RULES = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": ">", "value": 5}]}
CORRECTED = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": ">", "value": 1}]}


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    table = IngestedTable(firn, tenant, tmp_path, dataset=RULES)
    table.ingest("2024-01-01", HEADER + row(1, quantity=9) + row(2, quantity=3) + row(3) + row("x"))
    table.ingest("2024-01-02", HEADER + row(4, quantity=9) + row(5, quantity=4))
    for file in table.files.iterdir():
        file.unlink()
    return table


def counts(done: dict[str, Any]) -> tuple[int, int, int]:
    return done["records_read"], done["records_ingested"], done["records_rejected"]


def raw_ids(sales: IngestedTable) -> list[str]:
    return [r["raw"].partition(",")[0] for r in sales.quarantined()]


def test_rows_that_corrected_rules_accept_become_rows_of_their_dates(sales: IngestedTable) -> None:
    before = sales.quarantined()
    plan = sales.ok("REPLAY", dataset=CORRECTED, dry_run=True)
    assert (counts(plan["plan"]), plan["dry_run"]) == ((4, 2, 2), True)
    assert sales.quarantined() == before
    done = sales.ok("REPLAY", dataset=CORRECTED)
    assert counts(done) == (4, 2, 2)
    assert done["rejects"] == {"quantity > 1": 1, "id: not a BIGINT": 1}
    assert sales.ids() == [1, 2, 4, 5]
    dates = {r["id"]: (r["_firn_date"], Path(r["_firn_file"]).name) for r in sales.dated()}
    assert (dates[2], dates[5]) == (
        ("2024-01-01", "sales_2024-01-01.csv"),
        ("2024-01-02", "sales_2024-01-02.csv"),
    )
    left = sales.quarantined()
    assert [(r["line"], r["rule"], r["replay_id"]) for r in left] == [
        (4, "quantity > 1", None),
        (5, "id: not a BIGINT", None),
    ]
    again = sales.ok("REPLAY", dataset=CORRECTED)
    assert counts(again) == (2, 0, 2)
    assert sales.ids() == [1, 2, 4, 5]


@pytest.mark.thorough
def test_only_the_rows_of_a_date_or_a_run_are_replayed(sales: IngestedTable) -> None:
    run = sales.quarantined()[-1]["run_id"]
    assert counts(sales.ok("REPLAY", dataset=CORRECTED, run_id=run)) == (1, 1, 0)
    assert sales.ids() == [1, 4, 5]
    assert counts(sales.ok("REPLAY", dataset=CORRECTED, date="2024-01-02")) == (0, 0, 0)
    assert counts(sales.ok("REPLAY", dataset=CORRECTED, **{"from": "2024-01-01", "to": "2024-01-01"})) == (3, 1, 2)
    assert raw_ids(sales) == ["3", "x"]


@pytest.mark.thorough
def test_a_date_that_is_ingested_again_has_no_replayed_rows_any_more(sales: IngestedTable) -> None:
    sales.ok("REPLAY", dataset=CORRECTED)
    sales.ingest("2024-01-01", HEADER + row(1, quantity=9))
    assert sales.ids() == [1, 4, 5]
    assert raw_ids(sales) == []


@pytest.mark.thorough
def test_rows_of_other_formats_are_read_as_they_were(firn: Firn, tenant: str, tmp_path: Path) -> None:
    rules = {**RULES, "on_drift": {"missing": "ignore"}}
    table = IngestedTable(firn, tenant, tmp_path, dataset=rules)
    lines = '{"id": 1, "quantity": 3, "product": "a,b"}\n{"quantity": 3}\n'
    table.ingest("2024-01-01", gzip.compress(lines.encode()), "a.jsonl.gz")
    quoted = HEADER + '2,2024-01-01,"two\nlines, ""quoted""",3,1.50\n'
    table.ingest("2024-01-02", quoted)
    assert table.rows() == []
    columns = [{**column, "nullable": True} for column in COLUMNS]
    assert counts(table.ok("REPLAY", dataset={**CORRECTED, "columns": columns})) == (3, 3, 0)
    found = table.rows(projection=["id", "product"])
    assert sorted((str(r["id"]), r["product"]) for r in found) == [
        ("1", "a,b"),
        ("2", 'two\nlines, "quoted"'),
        ("None", None),
    ]


def test_nothing_is_replayed_without_a_quarantine(firn: Firn, tenant: str, tmp_path: Path) -> None:
    assert counts(IngestedTable(firn, tenant, tmp_path).ok("REPLAY")) == (0, 0, 0)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"date": "2024-01-01", "to": "2024-01-02"}, "date"), ({"from": "2024-01-02", "to": "2024-01-01"}, "to")],
)
def test_impossible_dates_are_refused(
    firn: Firn, tenant: str, tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    assert IngestedTable(firn, tenant, tmp_path).fail("INVALID_REQUEST", "REPLAY", **fields)["field"] == field


@pytest.mark.thorough
def test_a_replay_that_ended_before_it_cleared_the_quarantine_counts_nothing_twice(
    sales: IngestedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replays, "_remove_marked", lambda *_: None)
    sales.ok("REPLAY", dataset=CORRECTED)
    found = sales.quarantined()
    assert [r["raw"].partition(",")[0] for r in found if r["replay_id"]] == ["2", "5"]
    assert [(r["rule"], r["column_name"]) for r in found if r["replay_id"]] == [("", None)] * 2
    assert len(found) == 4
    monkeypatch.undo()
    # Other rules than before: what the table has is decided by what it says, not by the rules.
    assert counts(sales.ok("REPLAY", dataset={"columns": COLUMNS})) == (2, 1, 1)
    assert sales.ids() == [1, 2, 3, 4, 5]
    assert raw_ids(sales) == ["x"]


@pytest.mark.thorough
def test_a_replay_that_ended_before_its_commit_loses_nothing(
    sales: IngestedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = ReplayPublication.replace_quarantined

    def ends(publication: ReplayPublication, staged: list[StagedIngest]) -> None:
        mark(publication, staged)
        raise OSError("the end")

    monkeypatch.setattr(ReplayPublication, "replace_quarantined", ends)
    sales.firn.fail(sales.request("REPLAY", dataset=CORRECTED), "INTERNAL_ERROR")
    monkeypatch.undo()
    assert sales.ids() == [1, 4]
    assert len(sales.quarantined()) == 4
    assert counts(sales.ok("REPLAY", dataset={"columns": COLUMNS})) == (4, 3, 1)
    assert sales.ids() == [1, 2, 3, 4, 5]
    assert raw_ids(sales) == ["x"]


@pytest.mark.thorough
def test_who_takes_replayed_rows_away_is_told_which_and_the_file_brings_them_back(
    firn: Firn, tenant: str, tmp_path: Path
) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset=RULES)
    content = HEADER + row(1, quantity=9) + row(2, quantity=3)
    first = table.ingest("2024-01-01", content)["metadata"]["snapshot_id"]
    table.ok("APPLY_TABLE", config=table.config, dataset=CORRECTED)
    replayed = table.ok("REPLAY")["metadata"]
    plan = table.ok("ROLLBACK", as_of=first, dry_run=True)["plan"]
    done = table.ok("ROLLBACK", as_of=first)
    for answer in (plan, done):
        assert "1 row that REPLAY had taken" in answer["warnings"][0]
        assert "sales_2024-01-01.csv" in answer["warnings"][0]
    assert (table.ids(), table.quarantined()) == ([1], [])
    assert table.ingest("2024-01-01", content)["records_ingested"] == 2
    restored = table.ok("RESTORE_BACKUP", as_of=first)
    assert (table.ids(), "warnings" in restored) == ([1], False), "the file of the date is what was replaced"
    restored = table.ok("RESTORE_BACKUP", as_of=replayed["snapshot_id"])
    assert (table.ids(), "warnings" in restored) == ([1, 2], False)


@pytest.mark.thorough
def test_an_undo_of_a_replay_says_where_its_rows_can_come_from(sales: IngestedTable) -> None:
    replayed = sales.ok("REPLAY", dataset=CORRECTED)["metadata"]["request_id"]
    plan = sales.ok("UNDO", request_id=replayed, dry_run=True)["plan"]
    undone = sales.ok("UNDO", request_id=replayed)
    for answer in (plan, undone):
        assert answer["warnings"][0].startswith("2 rows that REPLAY had taken")
    assert sales.ids() == [1, 4]


def test_the_same_file_after_a_replay_is_a_no_op_if_the_current_rules_give_what_the_date_has(
    firn: Firn, tenant: str, tmp_path: Path
) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset=RULES)
    content = HEADER + row(1, quantity=9) + row(2, quantity=3) + row(3)
    table.ingest("2024-01-01", content)
    table.ok("APPLY_TABLE", config=table.config, dataset=CORRECTED)
    table.ok("REPLAY")
    before = table.state()
    assert table.ingest("2024-01-01", content)["unchanged"] is True
    assert table.state() == before
    assert len(table.quarantined()) == 1
    other = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": "<", "value": 9}]}
    table.ok("APPLY_TABLE", config=table.config, dataset=other)
    assert counts(table.ok("REPLAY")) == (1, 1, 0)
    assert table.ids() == [1, 2, 3]
    assert counts(table.ingest("2024-01-01", content)) == (3, 2, 1), "row 1 does not pass the rules of now"
    assert table.ids() == [2, 3]


@pytest.mark.thorough
def test_a_replay_in_the_background_ends_with_the_response_that_it_would_have_had(sales: IngestedTable) -> None:
    accepted = sales.ok("REPLAY", dataset=CORRECTED, **{"async": True})

    def found() -> dict[str, Any]:
        answer: dict[str, Any] = sales.firn.parsed(sales.firn.client.get(accepted["status_url"]))
        return dict(answer["job"])

    wait_until(lambda: found()["state"] not in ("queued", "running"), 60)
    job = found()
    assert (job["kind"], job["state"], counts(job["result"])) == ("REPLAY", "done", (4, 2, 2))
    assert job["progress"]["records_ingested"] == 2
    assert sales.ids() == [1, 2, 4, 5]
