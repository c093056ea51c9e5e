"""Which differences between files and a table can be applied, and which are refused with the way out."""

from typing import Any

import pytest

from service.ingest.changes.difference import Change, dataset_changes, table_file_changes
from service.model.ingest.dataset import Dataset
from service.model.ingest.table_file import TableFile
from service.model.schema.types import Primitive

BASE: dict[str, Any] = {"name": "sales", "compaction": {"trigger": {"delay_days": 7}}}
COLUMNS = [{"name": "id", "type": "BIGINT"}, {"name": "amount", "type": "INTEGER"}, {"name": "note", "type": "VARCHAR"}]


def table_file(**values: Any) -> TableFile:
    return TableFile.model_validate({**BASE, **values})


def dataset(columns: list[dict[str, Any]], **values: Any) -> Dataset:
    return Dataset.model_validate({"columns": columns, **values})


def changed(new: TableFile, *, has_rows: bool = True) -> dict[str, Change]:
    return {one.path: one for one in table_file_changes(table_file(), new, has_rows=has_rows)}


def compared(new: Dataset, old: Dataset | None = None) -> tuple[dict[str, Change], Any]:
    old = dataset(COLUMNS) if old is None else old
    found, columns = dataset_changes(old, new, old.table_schema)
    return {one.path: one for one in found}, columns


def test_the_same_file_has_no_differences_however_its_defaults_are_written() -> None:
    explicit = table_file(export=False, partitioning={"strategy": "flat"})
    assert changed(explicit) == {}
    assert compared(dataset(COLUMNS, on_error="quarantine"))[0] == {}


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({"description": "new"}, {"description"}),
        ({"export": True, "storage": {"type": "local", "base_path": "out/"}}, {"export", "storage"}),
        ({"partitioning": {"pattern": "day-{date}.parquet"}}, {"partitioning.pattern"}),
        ({"compaction": {"trigger": {"delay_days": 8}}}, {"compaction.trigger.delay_days"}),
        (
            {"compaction": {**BASE["compaction"], "strategy": {"delete_source": True}}},
            {"compaction.strategy.delete_source"},
        ),
        ({"ingestion": {"watch": {"folder": "in", "pattern": "{date}.csv"}}}, {"ingestion.watch"}),
    ],
)
def test_these_differences_can_be_applied_and_say_what_they_do(values: dict[str, Any], paths: set[str]) -> None:
    found = changed(table_file(**values))
    assert set(found) == paths
    assert all(one.effect and one.refused is None for one in found.values())


def test_a_table_keeps_its_name() -> None:
    assert "RENAME_TABLE" in (changed(table_file(name="other"))["name"].refused or "")


def test_the_kind_of_period_changes_only_while_there_are_no_rows() -> None:
    weekly = table_file(compaction={**BASE["compaction"], "strategy": {"type": "weekly"}})
    assert changed(weekly)["compaction.strategy.type"].refused
    assert changed(weekly, has_rows=False)["compaction.strategy.type"].refused is None


def test_columns_are_added_and_widened() -> None:
    wider = [COLUMNS[0], {"name": "amount", "type": "BIGINT"}, COLUMNS[2], {"name": "city", "type": "VARCHAR"}]
    found, columns = compared(dataset(wider))
    assert not any(one.refused for one in found.values())
    assert columns.types == {"amount": Primitive("long")}
    assert list(columns.add) == ["city"]


@pytest.mark.parametrize("kind", ["VARCHAR", "DATE", "BOOLEAN"])
def test_a_column_cannot_become_narrower_or_another_type(kind: str) -> None:
    found, columns = compared(dataset([COLUMNS[0], {"name": "amount", "type": kind}, COLUMNS[2]]))
    assert "another name" in (found["dataset.columns.amount.type"].refused or "")
    assert columns.types == {}


def test_bigint_does_not_become_integer() -> None:
    found, _ = compared(dataset([{"name": "id", "type": "INTEGER"}, *COLUMNS[1:]]))
    assert found["dataset.columns.id.type"].refused


def test_a_column_is_not_removed() -> None:
    found, columns = compared(dataset(COLUMNS[:2]))
    assert "ALTER_TABLE" in (found["dataset.columns.note"].refused or "")
    assert columns.drop == ()


def test_rules_count_from_the_next_ingest_on() -> None:
    ruled = dataset(
        [{**COLUMNS[0], "nullable": False}, *COLUMNS[1:]],
        filters=[{"column": "amount", "operator": ">", "value": 0}],
        on_error="null",
        max_rejects="5%",
        on_drift={"new": "ignore"},
    )
    found, columns = compared(ruled)
    assert set(found) == {
        "dataset.columns.id.nullable",
        "dataset.filters",
        "dataset.on_error",
        "dataset.max_rejects",
        "dataset.on_drift.new",
    }
    assert all("next ingest" in one.effect for one in found.values())
    assert not columns.any


def test_a_table_without_a_dataset_yet_gets_all_columns() -> None:
    new = dataset(COLUMNS)
    found, columns = dataset_changes(None, new, Dataset.model_validate({"columns": COLUMNS[:1]}).table_schema)
    assert list(columns.add) == ["amount", "note"]
    assert {one.path for one in found} == {f"dataset.columns.{column['name']}" for column in COLUMNS}
    assert not any(one.refused for one in found)
