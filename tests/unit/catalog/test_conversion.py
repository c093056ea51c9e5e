"""A catalog whose names an earlier version encoded is converted once, whole or not at all; a shared one is refused."""

import os
import re
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from service.catalog.connect import connect
from service.catalog.conversion import check_shared, convert
from service.catalog.files.staging import remove_leftovers
from service.catalog.tables import Catalog
from service.catalog.types import to_iceberg
from service.errors import CatalogUnavailable
from service.model.names import TableName, dropped_table_name
from service.model.schema.definition import parse_schema
from service.settings import load

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
DROPPED = dropped_table_name("00000000-0000-0000-0000-00000000000a")
NAMES = [
    TableName("acme", "shop", "orders"),
    TableName("acme", "shop", "order_items"),
    TableName("acme", "shop", "Order-Items"),
    # The new encoding of the one is the old encoding of the other.
    TableName("acme", "shop", "a-b"),
    TableName("acme", "shop", "a_2db"),
    TableName("a-b", "n", "t"),
    TableName("a_2db", "n", "t"),
    DROPPED,
]
LEFTOVER = TableName("_firn", "bulk", "load-0a")
FOREIGN = ("warehouse_db", "a_b")
KILLED = -signal.SIGKILL


def old(name: str) -> str:
    return re.sub(r"[^a-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)


def old_namespace(name: TableName) -> str:
    return f"{old(name.tenant)}__{old(name.namespace)}"


def opened(home: Path) -> Catalog:
    return connect(load({"FIRN_HOME": str(home)}))


def rows(home: Path) -> list[tuple[str, ...]]:
    """What the catalog holds: every namespace, and every table with its metadata."""
    with closing(sqlite3.connect(home / "catalog.db")) as database:
        tables = database.execute("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables")
        namespaces = database.execute("SELECT namespace FROM iceberg_namespace_properties")
        return sorted([*tables, *namespaces])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as an earlier version left it, with tables that are not Firn's."""
    catalog = opened(tmp_path)
    for name in (*NAMES, LEFTOVER):
        catalog.create(name, SCHEMA, (), {})
    catalog.ensure_namespace("empty__n_2d1")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        # Through names that are neither old nor new, because some are both.
        for name in (*NAMES, LEFTOVER):
            namespace, table = name.identifier
            now = (f"!{old_namespace(name)}", f"!{old(name.table)}", namespace, table)
            changed = database.execute(
                "UPDATE iceberg_tables SET table_namespace = ?, table_name = ? "
                "WHERE table_namespace = ? AND table_name = ?",
                now,
            )
            assert changed.rowcount == 1
        for namespace in {name.identifier[0]: old_namespace(name) for name in (*NAMES, LEFTOVER)}.items():
            database.execute(
                "UPDATE iceberg_namespace_properties SET namespace = '!' || ?2 WHERE namespace = ?1", namespace
            )
        database.execute(
            "UPDATE iceberg_tables SET table_namespace = substr(table_namespace, 2), table_name = substr(table_name, 2)"
        )
        database.execute("UPDATE iceberg_namespace_properties SET namespace = ltrim(namespace, '!')")
        database.execute("INSERT INTO iceberg_tables VALUES ('firn', ?, ?, 'theirs', NULL, 'TABLE')", FOREIGN)
        database.execute("INSERT INTO iceberg_tables VALUES ('other', 'acme__shop', 'a_5fb', 'theirs', NULL, 'TABLE')")
        database.execute("PRAGMA user_version = 0")
    return tmp_path


def uuids(catalog: Catalog) -> dict[TableName, str]:
    return {name: catalog.load(name).uuid for name in NAMES}


def test_every_table_keeps_its_name_and_its_folder(home: Path, tmp_path: Path) -> None:
    before = {row[2] for row in rows(home) if len(row) == 3}
    catalog = opened(home)
    assert len(set(uuids(catalog).values())) == len(NAMES)
    assert catalog.list_tables("acme", "shop") == ["Order-Items", "a-b", "a_2db", "order_items", "orders"]
    assert catalog.list_namespaces() == [("a-b", "n"), ("a_2db", "n"), ("acme", "shop"), ("empty", "n-1")]
    assert {row[2] for row in rows(home) if len(row) == 3} == before
    names = {row[:2] for row in rows(home) if len(row) == 3}
    assert {("acme__shop", "order_items"), ("_firn__dropped", DROPPED.table), FOREIGN, ("acme__shop", "a_5fb")} <= names
    remove_leftovers(catalog)
    assert "_firn__bulk" not in {row[0] for row in rows(home) if len(row) == 3}


def test_a_catalog_is_converted_once(home: Path) -> None:
    first = opened(home)
    found = rows(home), uuids(first)
    first.create(TableName("acme", "shop", "a_5fb"), SCHEMA, (), {})  # the old encoding of a_b
    second = opened(home)
    assert uuids(second) == found[1]
    assert "a_5fb" in second.list_tables("acme", "shop")
    assert "a_b" not in second.list_tables("acme", "shop")


def test_a_new_home_is_not_converted_later(tmp_path: Path) -> None:
    opened(tmp_path).create(TableName("acme", "shop", "a_5fb"), SCHEMA, (), {})
    assert opened(tmp_path).list_tables("acme", "shop") == ["a_5fb"]


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a process that does the work."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # should it hang
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def convert_until(home: Path, statement: int) -> None:
    """Convert in this process, and kill it before its nth statement."""
    seen = 0

    def look(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(sqlite3.connect(home / "catalog.db", isolation_level=None)) as database:
        database.set_trace_callback(look)
        convert(database)


def test_a_kill_at_any_statement_leaves_the_catalog_as_it_was_and_the_next_start_converts_it(home: Path) -> None:
    before, statement = rows(home), 1
    while (code := in_child(partial(convert_until, home, statement))) == KILLED:
        assert rows(home) == before, f"killed before statement {statement}"
        statement += 1
    assert code == 0
    assert statement > len(before)  # it was killed before each row, too
    assert rows(home) != before
    assert len(set(uuids(opened(home)).values())) == len(NAMES)


def test_a_name_that_is_taken_stops_the_conversion_and_nothing_is_changed(home: Path) -> None:
    with closing(sqlite3.connect(home / "catalog.db")) as database, database:
        theirs = ("_firn__dropped", DROPPED.table)
        database.execute("INSERT INTO iceberg_tables VALUES ('firn', ?, ?, 'theirs', NULL, 'TABLE')", theirs)
    before = rows(home)
    with pytest.raises(CatalogUnavailable, match="UNIQUE"):
        opened(home)
    assert rows(home) == before


def test_the_catalog_of_a_later_version_is_refused_with_one_line(tmp_path: Path) -> None:
    opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(CatalogUnavailable, match=r"its format is 7.*use that version") as refused:
        opened(tmp_path)
    assert "\n" not in refused.value.message


@pytest.fixture
def shared(tmp_path: Path) -> Catalog:
    warehouse = f"file://{tmp_path}"
    return Catalog(load_catalog("firn", type="in-memory", warehouse=warehouse), warehouse)


@pytest.mark.parametrize("found", ["_5ffirn__warm", "acme_2d1__shop", "acme__shop.order_5fitems"])
def test_a_shared_catalog_with_other_names_is_refused_with_one_line(shared: Catalog, found: str) -> None:
    namespace, _, table = found.partition(".")
    shared.ensure_namespace("acme__shop")
    shared.ensure_namespace(namespace)
    if table:
        shared.iceberg.create_table((namespace, table), to_iceberg(SCHEMA))
    for _ in range(2):
        with pytest.raises(CatalogUnavailable, match=re.escape(found)) as refused:
            check_shared(shared)
        assert "\n" not in refused.value.message
        assert "empty catalog" in refused.value.message
    shared.ensure_namespace("_firn__dropped")  # as the message says
    check_shared(shared)


def test_a_shared_catalog_is_checked_once_by_all_instances(shared: Catalog) -> None:
    for namespace in ("acme__shop", "warehouse_db", "a__b_2x"):
        shared.ensure_namespace(namespace)
        shared.iceberg.create_table((namespace, "orders"), to_iceberg(SCHEMA))
    check_shared(shared)
    shared.create(TableName("acme", "shop", "order_5fitems"), SCHEMA, (), {})
    check_shared(shared)
    assert shared.list_tables("acme", "shop") == ["order_5fitems", "orders"]
