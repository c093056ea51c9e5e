"""One behaviour suite for the catalog in memory and the real one, PyIceberg on SQLite."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from service.catalog.connect import connect
from service.catalog.tables import Catalog
from service.errors import SnapshotNotFound, TableExists, TableNotFound
from service.names import TableName
from service.schema import parse_schema
from service.settings import load
from tests.fakes import FakeCatalog

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
ORDERS = TableName("acme", "shop", "orders")
Append = Callable[[TableName, str], int]

_batches = itertools.count(1)


@pytest.fixture(params=["fake", "real"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Catalog, Append]:
    """A catalog, and how a stamped commit is made in it."""
    if request.param == "fake":
        fake = FakeCatalog()
        return fake.as_catalog, fake.append
    real = connect(load({"FIRN_HOME": str(tmp_path)}))

    def append(name: TableName, batch: str) -> int:
        table = real.load(name).iceberg
        table.append(pa.table({"id": [1]}), snapshot_properties={"firn-batch": batch})
        snapshot = table.current_snapshot()
        assert snapshot
        return snapshot.snapshot_id

    return real, append


def test_a_table_is_there_from_its_creation_to_its_drop(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    made = catalog.create(ORDERS, SCHEMA, (), {})
    assert catalog.load(ORDERS).uuid == made.uuid
    assert catalog.list_tables("acme", "shop") == ["orders"]
    catalog.drop(made, purge=True)
    assert catalog.list_tables("acme", "shop") == []
    with pytest.raises(TableNotFound):
        catalog.load(ORDERS)
    with pytest.raises(TableNotFound):
        catalog.drop(made, purge=False)


def test_a_table_is_made_once(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    made = catalog.create(ORDERS, SCHEMA, (), {})
    with pytest.raises(TableExists) as refused:
        catalog.create(ORDERS, SCHEMA, (), {})
    assert refused.value.field == "table"
    assert catalog.load(ORDERS).uuid == made.uuid


def test_a_missing_table_is_told_with_the_nearest_name(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    catalog.create(ORDERS, SCHEMA, (), {})
    with pytest.raises(TableNotFound) as missing:
        catalog.load(TableName("acme", "shop", "order"))
    assert (missing.value.field, missing.value.suggestion) == ("table", "orders")
    with pytest.raises(TableNotFound) as elsewhere:
        catalog.load(TableName("acme", "other", "order"))
    assert elsewhere.value.suggestion is None


def test_a_table_made_again_is_another(both: tuple[Catalog, Append]) -> None:
    catalog, append = both
    first = catalog.create(ORDERS, SCHEMA, (), {})
    append(ORDERS, "b1")
    catalog.drop(first, purge=False)
    second = catalog.create(ORDERS, SCHEMA, (), {})
    assert first.uuid != second.uuid
    assert catalog.load(ORDERS).committed_by("b1") is None


def test_a_commit_is_found_by_its_stamp_for_as_long_as_its_snapshot_is_there(both: tuple[Catalog, Append]) -> None:
    catalog, append = both
    empty = catalog.create(ORDERS, SCHEMA, (), {})
    assert (empty.current_snapshot_id, empty.snapshots()) == (None, [])
    ids = [append(ORDERS, f"b{i}") for i in range(3)]
    table = catalog.load(ORDERS)
    assert table.current_snapshot_id == ids[-1]
    for i, snapshot_id in enumerate(ids):
        found = table.committed_by(f"b{i}")
        assert found
        assert (found.snapshot_id, found.parent_id) == (snapshot_id, ids[i - 1] if i else None)
        assert table.snapshot(snapshot_id).summary["firn-batch"] == f"b{i}"
    assert table.committed_by("another") is None
    with pytest.raises(SnapshotNotFound):
        table.snapshot(max(ids) + 1)
    # A table is what it was when it was loaded.
    assert empty.committed_by("b0") is None


def test_a_table_keeps_the_properties_it_was_made_with(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    catalog.create(ORDERS, SCHEMA, (), {"firn-batch": "b1", "comment": "one"})
    properties = catalog.load(ORDERS).properties
    assert (properties["firn-batch"], properties["comment"]) == ("b1", "one")


def test_tables_have_names_in_sql_of_their_own(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    names = [TableName("acme", "shop", "a"), TableName("acme", "b", "a"), TableName("b", "shop", "a")]
    assert len({catalog.create(name, SCHEMA, (), {}).spark_name for name in names}) == 3
