"""COMPACT with a period, on a real catalog and real files, by an engine that merges without Spark."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo

from handlers.compact import Compact, CompactDryRun, CompactResult, compact
from handlers.table_status import TableStatus, TableStatusResult, table_status
from service.catalog.files.data_files import matching_files
from service.catalog.tables import Catalog, Table
from service.engine.iceberg.compaction import FileGroup, PlannedGroups, RewriteOptions, RewrittenGroup
from service.errors import InvalidRequest
from service.ingest.periods.merges import PeriodMerges
from service.ingest.periods.status import IngestionStatuses
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.jobs.background import Background
from service.ledger.ingestions import IngestionRecord, as_summary
from service.maintenance.compact.compaction import Compactions
from service.model.call import Call
from service.model.ingest.dataset import Dataset
from service.model.ingest.periods import period_of
from service.model.ingest.reserved import INGEST_PROPERTY
from service.model.ingest.table_file import TableFile
from service.model.names import BATCH_PROPERTY
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, open_catalog
from tests.unit.maintenance.test_compaction import FakeSpark

FIRST = date(2024, 1, 1)  # a Monday, the first day of 2024-W01
SCHEMA = pa.schema(
    [("id", pa.int64()), ("_firn_period", pa.string()), ("_firn_date", pa.date32()), ("_firn_file", pa.string())]
)


class PyIcebergMerges(FakeSpark):
    """Merges the files of a period by PyIceberg, as Spark would."""

    asked: RewriteOptions | None = None

    def plan(self, table: str, how: RewriteOptions, snapshot_id: int) -> PlannedGroups:
        self.asked = how
        groups: dict[str, list[str]] = {}
        for file in matching_files(self.catalog.load(ORDERS), how.filter_json):
            if file.bytes < how.small_bytes:
                groups.setdefault(f"_firn_period={file.group[1]}", []).append(file.path)
        found = [FileGroup(p, f[0], len(f), 1000 * len(f), 1, False, f) for p, f in groups.items() if len(f) > 1]
        return PlannedGroups(None, snapshot_id, tuple(found))

    def remove(self, table: str, location: str, snapshots: list[int], refs: list[str]) -> None:
        """Expire snapshots, and delete the lists of their manifests as the service does."""
        before = {s.manifest_list for s in self.catalog.load(ORDERS).iceberg.metadata.snapshots}
        super().remove(table, location, snapshots, refs)
        iceberg = self.catalog.load(ORDERS).iceberg
        for gone in before - {s.manifest_list for s in iceberg.metadata.snapshots}:
            iceberg.io.delete(gone)

    def _swap(self, done: list[RewrittenGroup], batch: str, gate: Any) -> None:
        gate()
        for one in done:
            iceberg = self.catalog.load(ORDERS).iceberg
            only = EqualTo("_firn_period", one.group.partition.partition("=")[2])  # type: ignore[arg-type, call-arg]
            rows = iceberg.scan(row_filter=only).to_arrow().cast(SCHEMA)
            with iceberg.transaction() as change:
                change.overwrite(rows, only, snapshot_properties={BATCH_PROPERTY: batch, "replace-partitions": "x"})


class Sales(Composed):
    """An ingestion table, of weeks unless it says otherwise, with a row for each date."""

    def __init__(self, home: Path, catalog: Catalog | None = None, **config: Any) -> None:
        catalog = catalog or open_catalog(home / "home")
        super().__init__(home / "ledger.db", catalog=catalog, engine=PyIcebergMerges(catalog))
        self.home = home
        self.runs = 0
        strategy = config.pop("strategy", {})
        values = {"name": "orders", "compaction": {"strategy": {"type": "weekly", **strategy}}, **config}
        self.config = TableFile.model_validate(values)
        dataset = Dataset.model_validate({"columns": [{"name": "id", "type": "BIGINT"}]})
        properties = ingestion_properties(self.config, dataset)
        catalog.create(ORDERS, *ingestion_layout(dataset), properties)

    @property
    def table(self) -> Table:
        return cast(Table, self.catalog.load(ORDERS))

    def ingest(self, *days: int) -> None:
        for number in days:
            day, self.runs = FIRST + timedelta(number), self.runs + 1
            period = period_of(day, self.config.granularity)
            run = IngestionRecord(f"run{self.runs}", str(day), "f.csv", "h", "d", "restate", 1, 1, ended_ms=self.runs)
            row = {"id": number, "_firn_period": period, "_firn_date": day, "_firn_file": "f.csv"}
            summary = {INGEST_PROPERTY: json.dumps(as_summary([run]))}
            self.table.iceberg.append(pa.Table.from_pylist([row], SCHEMA), snapshot_properties=summary)

    def compact(self, today: date = date(2024, 3, 1), **fields: Any) -> CompactResult:
        request = Compact.model_validate({"operation": "COMPACT", "tenant_id": "acme", "table": "orders", **fields})
        request = request.model_copy(update={"namespace": "shop"})
        merges = replace(self.parts[PeriodMerges], now=lambda: datetime(today.year, today.month, today.day, tzinfo=UTC))
        compactions = self.parts[Compactions]
        background = cast(Background, None)
        done = compact.handler(
            request, Call("r"), self.catalog, background, compactions, compactions.small_files, merges
        )
        return cast(CompactResult, done)

    def status(self) -> TableStatusResult:
        request = TableStatus(operation="TABLE_STATUS", tenant_id="acme", namespace="shop", table="orders")
        return cast(TableStatusResult, table_status.handler(request, self.catalog, self.parts[IngestionStatuses]))

    def ids(self) -> list[int]:
        return sorted(self.table.iceberg.scan().to_arrow()["id"].to_pylist())

    def exported(self) -> dict[str, list[int]]:
        return {p.name: sorted(pq.read_table(p)["id"].to_pylist()) for p in sorted((self.home / "out").iterdir())}


def exporting(home: Path) -> dict[str, Any]:
    return {"export": True, "storage": {"type": "local", "base_path": str(home / "out"), "format": "parquet"}}


def test_only_the_files_of_the_period_are_merged_whatever_their_size_below_the_target(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(9))
    done = sales.compact(period="2024-W01")
    assert done.compacted is True
    assert [one.model_dump() for one in done.periods or ()] == [
        {
            "period": "2024-W01",
            "records": 7,
            "files_before": 7,
            "files_after": 1,
            "output": None,
            "source_files_deleted": 0,
        }
    ]
    assert sales.ids() == list(range(9))
    how = sales.engine.asked
    assert how.small_bytes == how.target_bytes - 1  # Iceberg wants it to be below


def test_a_dry_run_shows_the_periods_and_changes_nothing(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(7))
    before = sales.table.current_snapshot_id
    done: object = sales.compact(period="2024-W01", dry_run=True)
    assert isinstance(done, CompactDryRun)
    [planned] = done.plan.periods or ()
    assert (planned.files_before, planned.files_after) == (7, 1)
    assert [group.partition for group in done.plan.groups] == ["2024-W01"]
    assert sales.table.current_snapshot_id == before


def test_due_merges_what_is_complete_and_names_the_rest(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(7), 8, 9)
    done = sales.compact(period="due")
    assert [one.period for one in done.periods or ()] == ["2024-W01"]
    [skipped] = done.periods_skipped or ()
    assert (skipped.period, skipped.missing_dates[0]) == ("2024-W02", "2024-01-08")
    assert "2024-W02 was skipped, because it is incomplete" in (done.reason or "")
    again = sales.compact(period="due")
    assert (again.compacted, again.periods) == (False, [])
    assert "merged already" in (again.reason or "")


def test_due_says_that_nothing_is_due(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(7))
    done = sales.compact(period="due", today=date(2024, 1, 5))
    assert (done.compacted, done.reason, done.periods) == (False, "no period is due", [])


def test_deleted_source_files_are_those_that_no_snapshot_needs(tmp_path: Path) -> None:
    sales = Sales(tmp_path, strategy={"delete_source": True})
    sales.ingest(*range(7))
    tagged = sales.table.snapshots()[1].snapshot_id
    sales.table.iceberg.manage_snapshots().create_tag(tagged, "kept").commit()
    [merged] = sales.compact(period="2024-W01").periods or ()
    assert merged.source_files_deleted == 5  # the tag needs the files of two dates
    assert sales.table.snapshot(tagged).snapshot_id == tagged


def test_files_can_be_deleted_after_an_earlier_merge_kept_them(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(7))
    sales.compact(period="2024-W01")
    assert sales.table.snapshot_count > 1
    [merged] = sales.compact(period="2024-W01", delete_source=True).periods or ()
    assert (merged.files_before, merged.files_after, merged.source_files_deleted) == (1, 1, 7)
    assert sales.table.snapshot_count == 1


def test_the_exported_file_of_a_period_replaces_those_of_its_dates_only_if_that_is_wanted(tmp_path: Path) -> None:
    sales = Sales(tmp_path, **exporting(tmp_path))
    sales.ingest(*range(7))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/2024-01-01.parquet").write_bytes(b"a daily file")
    [kept] = sales.compact(period="2024-W01").periods or ()
    assert (kept.output, kept.source_files_deleted) == (str(tmp_path / "out/2024-W01.parquet"), 0)
    [deleted] = sales.compact(period="2024-W01", delete_source=True).periods or ()
    assert (deleted.output, deleted.source_files_deleted) == (None, 1)
    assert sales.exported() == {"2024-W01.parquet": list(range(7))}


def test_a_failed_export_is_a_warning_and_keeps_the_daily_files(tmp_path: Path) -> None:
    sales = Sales(tmp_path, **exporting(tmp_path), strategy={"delete_source": True})
    sales.ingest(*range(7))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/2024-01-01.parquet").write_bytes(b"a daily file")
    (tmp_path / "out/2024-W01.parquet").mkdir()
    done = sales.compact(period="2024-W01")
    assert done.compacted is True
    assert "send EXPORT to repeat it" in (done.warnings or [""])[0]
    assert (tmp_path / "out/2024-01-01.parquet").exists()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"period": "2024-01"}, "period"),
        ({"period": "2024-W02"}, "period"),
        ({"delete_source": True}, "delete_source"),
        ({"allow_incomplete": False}, "allow_incomplete"),
        ({"period": "due", "partition_filter": {"x": 1}}, "partition_filter"),
        ({"period": "due", "delete_source": True, "snapshot_retention_hours": 5}, "snapshot_retention_hours"),
    ],
)
def test_a_wrong_request_names_its_field_and_changes_nothing(
    tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    sales = Sales(tmp_path)
    sales.ingest(*range(7))
    before = sales.table.current_snapshot_id
    with pytest.raises(InvalidRequest) as refused:
        sales.compact(**fields)
    assert refused.value.field == field
    assert sales.table.current_snapshot_id == before


def test_the_status_knows_which_periods_are_merged(tmp_path: Path) -> None:
    sales = Sales(tmp_path)
    assert sales.status().periods == []
    sales.ingest(*range(7), 9)
    before = sales.status()
    assert (before.dates, before.files, before.records, before.missing_dates) == (8, 8, 8, ["2024-01-08", "2024-01-09"])
    assert [one.compacted for one in before.periods] == [False, False]
    sales.compact(period="2024-W01")
    after = sales.status()
    assert (after.compactions, after.files, after.first_compacted_period) == (1, 2, "2024-W01")
    assert [(one.period, one.days, one.compacted) for one in after.periods] == [
        ("2024-W01", 7, True),
        ("2024-W02", 1, False),
    ]
    assert after.periods[1].missing_dates[:2] == ["2024-01-08", "2024-01-09"]
