"""One behaviour suite for the catalogs in memory and the real one, PyIceberg on SQLite; and instances in memory."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable

from service.catalog.tables import Catalog
from service.errors import CommitConflict, SnapshotNotFound, TableExists, TableNotFound
from service.ledger.owners import SingleInstance
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from tests.fakes import FakeCatalog, FakeOwners
from tests.unit.iceberg_tables import connected, open_catalog

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
ORDERS = TableName("acme", "shop", "orders")
ONE_TRY = {"commit.retry.num-retries": "0"}
Append = Callable[[TableName, str], int]

_batches = itertools.count(1)


@pytest.fixture(params=["fake", "memory", "real"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Catalog, Append]:
    """A catalog, and how a stamped commit is made in it."""
    if request.param == "fake":
        fake = FakeCatalog()
        return fake.as_catalog, fake.append
    real = connected(tmp_path) if request.param == "real" else open_catalog(tmp_path)

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


def test_the_namespaces_are_those_of_the_tenant_that_is_asked_for_or_of_all(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    for name in (
        ORDERS,
        TableName("acme", "b-2", "t"),
        TableName("acme_x", "shop", "t"),
        TableName("Acme", "shop", "t"),
    ):
        catalog.create(name, SCHEMA, (), {})
    assert catalog.list_namespaces("acme") == [("acme", "b-2"), ("acme", "shop")]
    assert catalog.list_namespaces("nobody") == []
    assert catalog.list_namespaces() == [("Acme", "shop"), ("acme", "b-2"), ("acme", "shop"), ("acme_x", "shop")]


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


def test_a_renamed_table_is_the_same_one_and_takes_nobodys_address(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    made, other = catalog.create(ORDERS, SCHEMA, (), {}), TableName("acme", "shop", "others")
    catalog.create(other, SCHEMA, (), {})
    with pytest.raises(TableExists):
        catalog.rename(made, other)
    to = TableName("acme", "elsewhere", "orders")
    assert catalog.rename(made, to).uuid == catalog.load(to).uuid == made.uuid
    with pytest.raises(TableNotFound):
        catalog.load(ORDERS)
    with pytest.raises(TableNotFound):
        catalog.rename(made, to)


def test_tables_have_names_in_sql_of_their_own(both: tuple[Catalog, Append]) -> None:
    catalog, _ = both
    names = [TableName("acme", "shop", "a"), TableName("acme", "b", "a"), TableName("b", "shop", "a")]
    assert len({catalog.create(name, SCHEMA, (), {}).spark_name for name in names}) == 3


class TestFence:
    """A snapshot that adds nothing: what was built before it can no longer be committed."""

    def test_it_is_the_newest_and_nobodys_batch(self, both: tuple[Catalog, Append]) -> None:
        catalog, append = both
        catalog.create(ORDERS, SCHEMA, (), {})
        made = append(ORDERS, "b1")
        catalog.fence(catalog.load(ORDERS), "b2")
        table = catalog.load(ORDERS)
        fence = table.snapshots()[-1]
        assert (len(table.snapshots()), fence.parent_id, table.current_snapshot_id) == (2, made, fence.snapshot_id)
        assert fence.summary["firn-fence"] == "b2"
        assert "firn-batch" not in fence.summary
        assert table.committed_by("b2") is None
        found = table.committed_by("b1")
        assert found
        assert found.snapshot_id == made

    def test_also_of_a_table_without_any(self, both: tuple[Catalog, Append]) -> None:
        catalog, append = both
        table = catalog.create(ORDERS, SCHEMA, (), {})
        catalog.fence(table, "b1")
        assert [s.summary.get("firn-fence") for s in catalog.load(ORDERS).snapshots()] == ["b1"]
        append(ORDERS, "b1")
        assert catalog.load(ORDERS).committed_by("b1")

    def test_a_new_table_of_the_same_name_is_left_alone(self, both: tuple[Catalog, Append]) -> None:
        catalog, _ = both
        old = catalog.create(ORDERS, SCHEMA, (), {})
        catalog.drop(old, purge=False)
        catalog.create(ORDERS, SCHEMA, (), {})
        catalog.fence(old, "b1")
        assert catalog.load(ORDERS).snapshots() == []

    def test_a_table_that_is_gone_is_not_found(self, both: tuple[Catalog, Append]) -> None:
        catalog, _ = both
        old = catalog.create(ORDERS, SCHEMA, (), {})
        catalog.drop(old, purge=False)
        with pytest.raises(TableNotFound):
            catalog.fence(old, "b1")

    @pytest.mark.parametrize("opened", [open_catalog, connected])
    def test_what_was_built_on_the_table_before_is_refused_and_what_is_built_on_it_now_is_not(
        self, tmp_path: Path, opened: Callable[[Path], Catalog]
    ) -> None:
        """Where Iceberg commits, which names the snapshot that it was built on."""
        catalog = opened(tmp_path)
        catalog.create(ORDERS, SCHEMA, (), ONE_TRY)
        row = pa.table({"id": [1]})
        for _ in range(2):  # a table without snapshots, and one with some
            before = catalog.load(ORDERS)
            catalog.fence(before, "b1")
            with pytest.raises(CommitFailedException):
                before.iceberg.append(row)
            catalog.load(ORDERS).iceberg.append(row)
        assert catalog.load(ORDERS).iceberg.scan().to_arrow().num_rows == 2

    def test_writers_who_are_quicker_do_not_keep_it_from_being_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, others = (connected(tmp_path) for _ in range(2))
        table = real.create(ORDERS, SCHEMA, (), ONE_TRY)
        beaten = 0
        load_table = real._catalog.load_table

        def and_is_beaten(identifier: tuple[str, ...]) -> IcebergTable:
            nonlocal beaten
            loaded = load_table(identifier)
            if beaten < 3:
                beaten += 1
                others.load(ORDERS).iceberg.append(pa.table({"id": [1]}))
            return loaded

        monkeypatch.setattr(real._catalog, "load_table", and_is_beaten)
        real.fence(table, "b1")
        stamps = [s.summary.get("firn-fence") for s in real.load(ORDERS).snapshots()]
        assert stamps == [None, None, None, "b1"]


class TestOwners:
    """The one instance of a home, and those in memory that stand for several on one ledger."""

    def test_alone_every_other_owner_is_gone(self) -> None:
        one, other = SingleInstance(), SingleInstance()
        assert (one.shared, one.me != other.me) == (False, True)
        assert (one.gone(one.me), one.gone(other.me), one.gone("")) == (False, True, True)

    def test_several_see_each_other_until_one_goes_away(self) -> None:
        one = FakeOwners("one")
        other = one.beside("other")
        assert (one.gone("other"), other.gone("one"), one.gone("third"), one.gone("")) == (False, False, True, True)
        one.close()
        assert (other.gone("one"), one.gone("one"), one.gone("other")) == (True, False, False)

    def test_one_at_a_time_edits_a_table(self) -> None:
        one = FakeOwners("one", wait_s=0.01)
        other = one.beside("other")
        with one.table("uuid"), pytest.raises(CommitConflict), other.table("uuid"):
            pass
        with other.table("uuid"):
            pass
