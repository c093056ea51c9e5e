"""What is counted, what is read, and what is told: every figure by its name, and of so many tables at most."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from service.api.http import create
from service.app import App
from service.metrics.catalogue import ALL, BULK, DONE, FAILED, GAUGES, NONE, NOTHING, PER_TABLE, RECORDED
from service.metrics.metrics import Metrics
from service.model.names import TableName
from service.settings import load

ORDERS = TableName("acme", "shop", "orders")
OTHERS = TableName("acme", "shop", "others")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """One figure; None where there is no such series."""
    return metrics.registry.get_sample_value(name, labels)


def result(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Everything that is told, by name and labels."""
    text = metrics.exposition()[0].decode()
    return {(s.name, frozenset(s.labels.items())): s.value for family in read_text(text) for s in family.samples}


def tables(metrics: Metrics) -> set[str]:
    """The tables that any series names."""
    return {dict(labels)["table"] for _, labels in result(metrics) if "table" in dict(labels)}


def everything(metrics: Metrics) -> Metrics:
    """Each event once, and each figure read."""
    metrics.serves("WRITE")
    metrics.request("WRITE", "ok", 0.1)
    metrics.queried(0.1)
    metrics.streamed(1, whole=True)
    metrics.batch(3, 30)
    for happened in (metrics.retried, metrics.conflict):
        happened("WRITE")
    metrics.committed("WRITE", 0.2)
    metrics.checked(ORDERS, 4)
    metrics.recommended(ORDERS)
    metrics.compacted(ORDERS, DONE, 9, 2, 8, 1000, 900, 1, 1, 2.5)
    metrics.compacted(ORDERS, FAILED)
    metrics.job("BULK", "running")
    metrics.schedule_ran("done")
    metrics.refreshed("FULL", "done", 0.3, added=5, removed=1)
    metrics.lagged(ORDERS, 3, 60, 0)
    for kind in GAUGES:
        metrics.read(kind.name, lambda kind=kind: {tuple("x" for _ in kind.labels): 1})  # type: ignore[misc]
    return metrics


@pytest.mark.parametrize("accept", [None, "text/plain;version=1.0.0", "application/openmetrics-text; version=1.0.0"])
def test_what_is_told_can_be_read_and_has_every_metric_with_its_kind_its_help_and_its_labels(
    accept: str | None,
) -> None:
    text, content_type = everything(Metrics()).exposition(accept)
    openmetrics = accept is not None and accept.startswith("application")
    assert content_type.startswith("application/openmetrics-text" if openmetrics else "text/plain; version=")
    read: Any = read_openmetrics if openmetrics else read_text
    families = {family.name: family for family in read(text.decode())}
    for kind in ALL:
        family = families.pop(kind.name.removesuffix("_total") if kind.kind == "counter" else kind.name)
        assert (family.type, family.documentation) == (kind.kind, kind.help), kind.name
        assert family.samples, kind.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(kind.labels), kind.name
    assert all(name.startswith("process_") for name in families)


def test_no_series_says_when_another_was_made() -> None:
    assert b"_created" not in everything(Metrics()).exposition()[0]


def test_every_metric_says_what_it_is_and_has_its_unit_in_its_name() -> None:
    assert len({kind.name for kind in ALL}) == len(ALL)
    for kind in ALL:
        assert kind.name.startswith("firn_")
        assert kind.help.endswith(".")
        assert (kind.kind == "counter") == kind.name.endswith("_total"), kind.name
        assert bool(kind.buckets) == (kind.kind == "histogram"), kind.name


def test_two_services_in_a_process_count_each_for_itself() -> None:
    one, other = Metrics(), Metrics()
    one.retried("WRITE")
    assert value(one, "firn_commit_retries_total", operation="WRITE") == 1
    assert value(other, "firn_commit_retries_total", operation="WRITE") is None


def test_a_request_is_counted_by_what_it_came_to_and_timed_where_it_was() -> None:
    metrics = Metrics()
    metrics.request("WRITE", "ok", 0.02)
    metrics.request("WRITE", "COMMIT_CONFLICT", 3)
    metrics.request(NONE, "BODY_TOO_LARGE")
    assert value(metrics, "firn_requests_total", operation="WRITE", code="ok") == 1
    assert value(metrics, "firn_requests_total", operation="WRITE", code="COMMIT_CONFLICT") == 1
    assert value(metrics, "firn_requests_total", operation=NONE, code="BODY_TOO_LARGE") == 1
    assert value(metrics, "firn_request_seconds_count", operation="WRITE") == 2
    assert value(metrics, "firn_request_seconds_bucket", operation="WRITE", le="0.025") == 1
    assert value(metrics, "firn_request_seconds_count", operation=NONE) is None


def test_what_alerts_look_for_begins_at_0_so_that_its_first_time_is_seen() -> None:
    metrics = Metrics()
    metrics.serves("WRITE")
    metrics.job("BULK", "running")
    metrics.committed("UPSERT", 1)
    figures = result(metrics)
    for name, labels in (
        ("firn_requests_total", {"operation": "WRITE", "code": "INTERNAL_ERROR"}),
        ("firn_compactions_total", {"outcome": "failed"}),
        ("firn_commit_conflicts_total", {"operation": "UPSERT"}),
        ("firn_streams_ended_total", {"outcome": "broken"}),
        ("firn_job_states_total", {"kind": "BULK", "state": "failed"}),
        ("firn_job_states_total", {"kind": "BULK", "state": "interrupted"}),
    ):
        assert figures[name, frozenset(labels.items())] == 0, name


class TestUpkeep:
    """Checks, recommendations, compactions; of all tables together, and of each."""

    def test_a_check_says_how_many_small_files_there_are_and_whether_to_merge_them(self) -> None:
        metrics = Metrics()
        metrics.checked(ORDERS, 7)
        metrics.recommended(ORDERS)
        metrics.checked(OTHERS, 1)
        assert of(metrics, ORDERS) == {"firn_table_small_files": 7, "firn_table_compaction_recommended": 1}
        assert of(metrics, OTHERS) == {"firn_table_small_files": 1, "firn_table_compaction_recommended": 0}
        assert value(metrics, "firn_small_file_checks_total") == 2
        assert value(metrics, "firn_recommendations_total") == 1

    def test_a_check_that_recommends_nothing_takes_the_recommendation_back(self) -> None:
        metrics = Metrics()
        metrics.checked(ORDERS, 7)
        metrics.recommended(ORDERS)
        metrics.checked(ORDERS, 2)
        assert of(metrics, ORDERS) == {"firn_table_small_files": 2, "firn_table_compaction_recommended": 0}

    def test_a_compaction_that_merged_is_added_up_and_kept_of_its_table(self) -> None:
        metrics = Metrics()
        metrics.recommended(ORDERS)
        metrics.compacted(ORDERS, DONE, 10, 3, 8, 1000, 700, 2, 1, 4.0)
        metrics.compacted(
            OTHERS, DONE, files_before=5, files_after=1, files_compacted=5, bytes_before=50, bytes_after=40
        )
        assert of(metrics, ORDERS) == {
            "firn_table_compaction_recommended": 1,
            "firn_table_compactions_total done": 1,
            "firn_table_compaction_files before": 10,
            "firn_table_compaction_files after": 3,
            "firn_table_compaction_bytes before": 1000,
            "firn_table_compaction_bytes after": 700,
        }
        assert value(metrics, "firn_compactions_total", outcome=DONE) == 2
        assert value(metrics, "firn_compaction_files_total", when="before") == 15
        assert value(metrics, "firn_compaction_files_total", when="after") == 4
        assert value(metrics, "firn_compaction_bytes_total", when="before") == 1050
        assert value(metrics, "firn_compaction_bytes_total", when="after") == 740
        assert value(metrics, "firn_compaction_merged_files_total") == 13
        assert value(metrics, "firn_compaction_conflicts_total") == 2
        assert value(metrics, "firn_compaction_failed_groups_total") == 1
        assert value(metrics, "firn_compaction_seconds_sum") == 4.0

    @pytest.mark.parametrize("outcome", [NOTHING, FAILED])
    def test_one_that_merged_nothing_leaves_the_figures_of_the_last_that_did(self, outcome: str) -> None:
        metrics = Metrics()
        metrics.compacted(ORDERS, DONE, 10, 3, 8, 1000, 700)
        before = of(metrics, ORDERS)
        metrics.recommended(ORDERS)
        metrics.compacted(ORDERS, outcome, 3, 3, 0, 700, 700, groups_failed=1)
        assert of(metrics, ORDERS) == {
            **before,
            "firn_table_compaction_recommended": 1,
            f"firn_table_compactions_total {outcome}": 1,
        }
        assert value(metrics, "firn_compaction_files_total", when="before") == 10
        assert value(metrics, "firn_compaction_seconds_count") == 1
        assert value(metrics, "firn_compaction_failed_groups_total") == 1


def of(metrics: Metrics, table: TableName) -> dict[str, float]:
    """A table's own series, by name and what labels they have beside the table's."""
    mine = {}
    for (name, labels), figure in result(metrics).items():
        at = dict(labels)
        if (at.pop("tenant", ""), at.pop("namespace", ""), at.pop("table", "")) == (
            table.tenant,
            table.namespace,
            table.table,
        ):
            mine[" ".join([name, *at.values()])] = figure
    return mine


def test_how_jobs_end_is_told_as_0_before_there_is_one() -> None:
    """An alert sees no step in a series that begins."""
    for kind in ("BULK", "COMPACT"):
        for state in ("failed", "interrupted"):
            assert value(Metrics(), "firn_job_states_total", kind=kind, state=state) == 0


class TestBound:
    """Names of tables come from clients."""

    @given(heard=st.lists(st.integers(0, 12), max_size=60), most=st.integers(0, 6))
    def test_the_tables_heard_of_last_are_told_and_no_others(self, heard: list[int], most: int) -> None:
        metrics = Metrics(most)
        for n in heard:
            metrics.checked(TableName("a", "b", str(n)), n)
        last = list(dict.fromkeys(reversed(heard)))[:most]
        assert tables(metrics) == {str(n) for n in last}
        for n in last:
            assert of(metrics, TableName("a", "b", str(n)))["firn_table_small_files"] == n

    def test_a_table_goes_with_all_its_series(self) -> None:
        metrics = Metrics(1)
        everything(metrics)
        assert {name.split()[0] for name in of(metrics, ORDERS)} == {kind.name for kind in PER_TABLE}
        metrics.checked(OTHERS, 1)
        assert of(metrics, ORDERS) == {}

    @pytest.mark.parametrize("hear", ["recommended", "compacted"])
    def test_any_word_of_a_table_keeps_it(self, hear: str) -> None:
        metrics = Metrics(2)
        metrics.checked(ORDERS, 1)
        metrics.checked(OTHERS, 1)
        if hear == "recommended":
            metrics.recommended(ORDERS)
        else:
            metrics.compacted(ORDERS, NOTHING)
        metrics.checked(TableName("acme", "shop", "new"), 1)
        assert tables(metrics) == {"orders", "new"}

    def test_a_table_that_was_only_looked_at_takes_nobodys_place(self) -> None:
        metrics = Metrics(1)
        metrics.counted_small_files(OTHERS, 3, recommended=True)
        assert of(metrics, OTHERS) == {"firn_table_small_files": 3, "firn_table_compaction_recommended": 1}
        metrics.checked(ORDERS, 1)
        metrics.counted_small_files(OTHERS, 4, recommended=True)
        metrics.counted_small_files(ORDERS, 2, recommended=False)
        assert tables(metrics) == {"orders"}
        assert of(metrics, ORDERS) == {"firn_table_small_files": 2, "firn_table_compaction_recommended": 0}

    def test_a_table_that_was_dropped_is_not_told(self) -> None:
        metrics = Metrics()
        metrics.checked(ORDERS, 1)
        metrics.dropped(ORDERS)
        metrics.dropped(OTHERS)
        assert tables(metrics) == set()

    def test_tables_that_are_not_told_are_counted_all_the_same(self) -> None:
        metrics = Metrics(0)
        everything(metrics)
        assert tables(metrics) == set()
        assert value(metrics, "firn_compactions_total", outcome=DONE) == 1
        assert value(metrics, "firn_recommendations_total") == 1

    def test_names_of_any_characters_come_out_as_they_are(self) -> None:
        metrics = Metrics()
        metrics.checked(TableName("a-b", "C_d", "9"), 3)
        series = frozenset({("tenant", "a-b"), ("namespace", "C_d"), ("table", "9")})
        assert result(metrics)["firn_table_small_files", series] == 3


class TestReads:
    """What is asked for only when somebody asks."""

    def test_a_figure_is_read_each_time(self) -> None:
        metrics, figures = Metrics(), iter([3, 5])
        metrics.read("firn_streams", lambda: next(figures))
        assert [value(metrics, "firn_streams") for _ in range(2)] == [3, 5]

    def test_one_that_cannot_be_read_hides_no_other(self, caplog: pytest.LogCaptureFixture) -> None:
        metrics = everything(Metrics())
        metrics.read("firn_streams", lambda: 1 // 0)
        with caplog.at_level(logging.WARNING):
            figures = {name for name, _ in result(metrics)}
        assert figures >= {kind.name for kind in GAUGES} - {"firn_streams"}
        assert "firn_streams" not in figures
        assert "firn_streams could not be read" in caplog.text

    def test_one_that_is_not_in_the_catalogue_is_a_defect(self) -> None:
        with pytest.raises(KeyError):
            Metrics().read("firn_strems", lambda: 0)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The real parts of a service whose Spark was never started."""
    made = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home")), "FIRN_METRICS__TABLES": "2"}), [])
    yield made
    made.stop()


def test_a_whole_service_leaves_nothing_unread_and_keeps_as_many_tables_as_its_settings_say(app: App) -> None:
    create(app)
    metrics = app.parts[Metrics]
    assert metrics.unread == set()
    for kind in GAUGES:
        labels = () if kind.name in ("firn_jobs", "firn_tenant_requests") else kind.labels  # it has none
        assert labels == () or any(name == kind.name for name, _ in result(metrics))
    for n in range(3):
        metrics.checked(TableName("a", "b", str(n)), n)
    assert tables(metrics) == {"1", "2"}


def test_a_service_whose_spark_was_never_started_says_so(app: App) -> None:
    metrics = app.parts[Metrics]
    assert [value(metrics, name) for name in ("firn_ready", "firn_engine_up", "firn_engine_starts_total")] == [0, 0, 0]
    for state in ("idle", "busy"):
        assert value(metrics, "firn_spark_sessions", state=state) == 0


def test_every_operation_and_bulk_loads_are_told_before_anybody_asks_for_them(app: App) -> None:
    names = {o.name for o in app.pipeline.operations} | {BULK}
    asked = {dict(labels)["operation"] for name, labels in result(app.parts[Metrics]) if name == "firn_requests_total"}
    assert names <= asked


def test_the_catalogue_has_no_label_with_a_meaning_of_its_own() -> None:
    """Prometheus adds these itself."""
    assert not {label for kind in (*RECORDED, *PER_TABLE, *GAUGES) for label in kind.labels} & {"job", "instance", "le"}
