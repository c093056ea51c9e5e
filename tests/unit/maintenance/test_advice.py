"""Tables are ranked by what was measured of them, and predictions are compared with what came of them."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from service.catalog.tables import Catalog, Table
from service.engine.session.scans import Scan
from service.ledger.jobs import JobRecords
from service.maintenance.advise.advice import Adviser, why
from service.maintenance.advise.costs import OPENING_MS, MergeSize, RewriteCosts
from service.maintenance.advise.query_log import QueryLog
from service.metrics.metrics import Metrics
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.settings import CompactionSettings, IcebergSettings
from tests.fakes import MuteLedger
from tests.jobs import compaction
from tests.unit.iceberg_tables import SCHEMA, append, open_catalog
from tests.unit.metrics.test_metrics import of


@dataclass
class Setup:
    """An adviser over a real catalog and ledger; the log's time is ours."""

    catalog: Catalog
    records: JobRecords
    now: float = 1_000_000.0
    metrics: Metrics = field(default_factory=Metrics)
    queries: QueryLog = field(init=False)
    adviser: Adviser = field(init=False)

    def __post_init__(self) -> None:
        self.queries = QueryLog(lambda: self.now)
        settings = IcebergSettings(compaction=CompactionSettings(max_files_per_compaction=4))
        self.adviser = Adviser(settings, self.catalog, self.records, self.queries, self.metrics)

    def table(self, name: str, files: int, namespace: str = "shop", tenant: str = "acme", **properties: str) -> Table:
        table = self.catalog.create(TableName(tenant, namespace, name), parse_schema(SCHEMA), (), properties)
        if files:
            append(table, *[None] * files)
        return self.catalog.load(table.name)

    def query(self, table: Table, files: int, total_ms: float = 50.0, planning_ms: int = 8, times: int = 1) -> None:
        for _ in range(times):
            self.now += 2
            assert self.queries.due([table])
            scan = Scan(table.spark_name.replace("`", ""), files, files * 1000, planning_ms, 1)
            self.queries.answered([table], total_ms, [scan])

    def compacted(self, table: Table, predicted: Any = None, *, stats: Any = None, state: str = "done") -> None:
        job = compaction(self.records, f"c{self.now}", table.name, table.uuid, round(self.now * 1000))
        self.now += 1
        counted = {"files_compacted": 10, "files_before": 10, "bytes_before": 10_000, "compaction_time_ms": 500}
        details = {"predicted": predicted, "stats": stats or counted}
        self.records.end(replace(job, state=state, details=details, ended_ms=round(self.now * 1000)))

    def predicted(self, table: Table) -> dict[str, Any]:
        [job] = self.records.log("COMPACT", 1, table=table.name.table)
        return dict(job.details["predicted"] or {})


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(open_catalog(tmp_path), JobRecords(MuteLedger(f"sqlite:///{tmp_path}/ledger.db")))


def test_tables_rank_by_worth_and_then_by_their_small_files(setup: Setup) -> None:
    setup.table("quiet", 9)
    setup.table("calm", 12, namespace="other")
    setup.table("other", 50, tenant="else")
    setup.query(setup.table("some", 9), 9)
    setup.query(setup.table("busy", 9), 9, times=5)
    setup.query(setup.table("merged", 1), 1, times=50)
    ranked = setup.adviser.ranked("acme")
    assert [a.name.table for a in ranked] == ["busy", "some", "calm", "quiet", "merged"]
    assert [a.recommended for a in ranked] == [True, True, True, True, False]
    assert [a.name.table for a in setup.adviser.ranked("acme", "other")] == ["calm"]
    assert setup.adviser.ranked("nobody") == setup.adviser.ranked("acme", "nowhere") == []


def test_metrics_are_told_of_the_small_files_of_every_table_that_is_looked_at(setup: Setup) -> None:
    for name, files in (("many", 9), ("few", 2)):
        setup.table(name, files)
    setup.adviser.ranked("acme")
    for name, figures in (("many", (9, 1)), ("few", (2, 0))):
        result = of(setup.metrics, TableName("acme", "shop", name))
        assert (result["firn_table_small_files"], result["firn_table_compaction_recommended"]) == figures


@pytest.mark.parametrize(
    ("files", "properties", "recommended", "mode", "message"),
    [
        (0, {}, False, "recommend", "there are no small files"),
        (2, {}, False, "recommend", "no partition has the 3"),
        (3, {}, True, "recommend", "no query of the table was measured"),
        (3, {"firn.compaction.mode": "auto"}, True, "auto", "3 of 3 file(s) are small"),
        (3, {"firn.compaction.mode": "off"}, False, "off", "compaction is off"),
        (3, {"firn.compaction.enabled": "false"}, False, "off", "compaction is off"),
    ],
)
def test_what_the_count_rule_finds_is_recommended_unless_the_mode_is_off(
    setup: Setup, files: int, properties: dict[str, str], recommended: bool, mode: str, message: str
) -> None:
    table = setup.table("t", files, **properties)
    [advice] = setup.adviser.ranked("acme")
    assert (advice.recommended, advice.mode) == (recommended, mode)
    assert message in why(advice)
    assert setup.adviser.of(table, setup.adviser.evidence()) == advice


def test_the_reason_has_the_numbers(setup: Setup) -> None:
    setup.query(setup.table("t", 9), 9, planning_ms=11)
    [advice] = setup.adviser.ranked("acme")
    message = why(advice)
    for part in ("9 of 9", "would leave 1 file(s)", "take about 0.2 s", "1.1 queries an hour", "9.0 file(s)", "11 ms"):
        assert part in message


def test_what_was_measured_before_the_last_compaction_is_not_how_things_are_now(setup: Setup) -> None:
    table = setup.table("t", 3)
    setup.query(table, 60, times=30)
    setup.now += 1
    setup.compacted(table)
    advice = setup.adviser.of(table, setup.adviser.evidence())
    assert (advice.queries.files_opened, advice.forecast.worth) == (None, 0)
    assert advice.queries.per_hour > 0
    setup.query(table, 3)
    assert setup.adviser.of(table, setup.adviser.evidence()).queries.files_opened == 3


def test_one_that_merged_nothing_or_failed_leaves_what_was_measured(setup: Setup) -> None:
    table = setup.table("t", 3)
    setup.query(table, 3)
    setup.compacted(table, stats={"files_compacted": 0})
    setup.compacted(table, state="failed")
    assert setup.adviser.of(table, setup.adviser.evidence()).queries.files_opened == 3


def test_notes_that_cannot_be_read_are_left_out(setup: Setup) -> None:
    table = setup.table("t", 3)
    setup.compacted(table, "nonsense", stats=[1])
    setup.compacted(table, "[]", stats={"files_compacted": "many", "compaction_time_ms": None})
    evidence = setup.adviser.evidence()
    assert (evidence.opening_ms, evidence.compacted_ms) == (OPENING_MS, {})
    assert setup.adviser.complete() == 0


def test_slow_compactions_of_the_past_make_the_next_one_cost_more(setup: Setup) -> None:
    table = setup.table("t", 9)
    before = setup.adviser.of(table, setup.adviser.evidence()).forecast.cost_ms
    for _ in range(8):
        setup.compacted(
            table,
            stats={"files_compacted": 9, "files_before": 18, "bytes_before": 2000, "compaction_time_ms": 5 * before},
        )
    evidence = setup.adviser.evidence()
    assert isinstance(evidence.rewriting, RewriteCosts)
    assert setup.adviser.of(table, evidence).forecast.cost_ms == pytest.approx(5 * before, rel=0.05)


def test_a_prediction_is_of_as_many_files_as_one_compaction_merges(setup: Setup) -> None:
    table = setup.table("t", 9)
    setup.query(table, 9, total_ms=80.0, times=2)
    predicted = setup.adviser.predict(table)
    assert (predicted["files_before"], predicted["files_merged"], predicted["files_after"]) == (9, 4, 6)
    planned = setup.adviser.predict(table, MergeSize(9, 1, 9, 9000))
    assert (planned["files_after"], planned["files_merged"], planned["bytes_merged"]) == (1, 9, 9000)
    assert planned["saving_ms"] > predicted["saving_ms"]
    assert predicted["query_ms_before"] == 80
    assert predicted["query_ms"] == pytest.approx(80 - predicted["saving_ms"])
    assert 0 < predicted["saving_ms"] < 80
    assert json.loads(json.dumps(predicted)) == predicted


def test_a_prediction_without_measured_queries_says_so(setup: Setup) -> None:
    predicted = setup.adviser.predict(setup.table("t", 9))
    assert (predicted["query_ms_before"], predicted["query_ms"], predicted["worth"]) == (None, None, 0)


class TestPredictedAgainstActual:
    def test_five_queries_after_a_compaction_complete_its_note_once(self, setup: Setup) -> None:
        table = setup.table("t", 9)
        setup.query(table, 9, total_ms=90.0, times=3)
        expected = setup.adviser.predict(table)
        setup.compacted(table, expected)
        setup.query(table, 1, total_ms=40.0, planning_ms=2, times=4)
        assert setup.adviser.complete() == 0
        setup.query(table, 1, total_ms=40.0, planning_ms=2)
        assert setup.adviser.complete() == 1
        noted = setup.predicted(table)
        assert noted == {
            **expected,
            "actual_query_ms": 40.0,
            "actual_planning_ms": 2,
            "actual_files_opened": 1,
            "actual_saving_ms": 50.0,
            "actual_samples": 5,
        }
        setup.query(table, 5, total_ms=70.0, times=5)
        assert setup.adviser.complete() == 0
        assert setup.predicted(table) == noted

    def test_queries_after_the_next_compaction_say_nothing_of_the_one_before(self, setup: Setup) -> None:
        table = setup.table("t", 9)
        setup.compacted(table, {"time_ms": 1})
        setup.query(table, 2, times=3)
        setup.now += 1
        setup.compacted(table, {"time_ms": 2})
        setup.query(table, 1, times=5)
        assert setup.adviser.complete() == 1
        latest, before = (job.details["predicted"] for job in setup.records.log("COMPACT", 2))
        assert (latest["actual_files_opened"], before) == (1, {"time_ms": 1})

    def test_nor_do_queries_of_the_next_day(self, setup: Setup) -> None:
        table = setup.table("t", 9)
        setup.compacted(table, {"time_ms": 1})
        setup.now += 24 * 3600
        setup.query(table, 1, times=9)
        assert setup.adviser.complete() == 0

    def test_where_nothing_was_predicted_nothing_is_compared(self, setup: Setup) -> None:
        table = setup.table("t", 9)
        setup.compacted(table)
        setup.query(table, 1, times=9)
        assert setup.adviser.complete() == 0
        assert setup.predicted(table) == {}
