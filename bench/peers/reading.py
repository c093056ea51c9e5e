"""PyIceberg scans, and DuckDB on their results: of the same table that Firn reads, loaded again for each query."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from bench.peers.commands import serve, timed

_TARGET = "write.target-file-size-bytes"
_KINDS = 20
_catalog: Catalog
_home: str
_name: tuple[str, str]


def open_table(home: str, namespace: str, table: str) -> None:
    global _catalog, _home, _name
    _home = home
    _catalog = load_catalog("firn", type="sql", uri=f"sqlite:///{home}/catalog.db?timeout=30")
    _name = (namespace, table)


def fill(files: int, each: int) -> int:
    """One commit of many small files, whose ids follow each other and whose keys do not; how many there are."""
    table = _fresh()
    count = files * each
    columns = {
        "id": range(count),
        # A prime that does not divide the count visits every number once, in no order that a file's statistics show.
        "key": [f"key-{i * 7919 % count:08d}" for i in range(count)],
        "kind": [f"kind-{i % _KINDS}" for i in range(count)],
        "amount": [i % 1000 + 0.5 for i in range(count)],
    }
    data = pa.Table.from_pydict(columns, schema=table.schema().as_arrow())
    before = table.properties[_TARGET]
    with table.transaction() as change:
        # PyIceberg cuts what it writes by the size it has in memory.
        change.set_properties({_TARGET: str(data.nbytes // files + 1)})
        change.append(data)
        change.set_properties({_TARGET: before})
    return len(_fresh().inspect.data_files())


def point(column: str, values: list[Any]) -> list[float]:
    """The row with each of these values: the milliseconds of each."""

    def one(value: Any) -> list[Any]:
        found = _fresh().scan(EqualTo(column, value)).to_arrow()
        return _asked(found, "SELECT * FROM found")

    return [_checked(lambda value=value: one(value), 1) for value in values]


def group(times: int) -> list[float]:
    """Count and sum of each kind: the milliseconds of each time."""

    def one() -> list[Any]:
        found = _fresh().scan(selected_fields=("kind", "amount")).to_arrow()
        return _asked(found, "SELECT kind, count(*), sum(amount) FROM found GROUP BY kind")

    return [_checked(one, _KINDS) for _ in range(times)]


def location() -> str:
    return str(_fresh().metadata_location)


def rewind(metadata: str) -> None:
    """Put the table back to an earlier state: its catalog entry points to the metadata of that time."""
    where = "WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(f"{_home}/catalog.db", timeout=30)) as catalog:
        entry = f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL {where}"
        catalog.execute(entry, (metadata, *_name))
        catalog.commit()


def overwrite(expected: int) -> float:
    """Read the whole table, and overwrite it with what was read."""
    table = _fresh()

    def job() -> None:
        found = table.scan().to_arrow()
        assert found.num_rows == expected, f"{found.num_rows} rows, not {expected}"
        table.overwrite(found)

    return timed(job)


def merge_in_duckdb(path: str, expected: int) -> float:
    """Read all data files, and write them into one."""
    files = [task.file.file_path.removeprefix("file://") for task in _fresh().scan().plan_files()]

    def job() -> None:
        with duckdb.connect() as connection:
            connection.read_parquet(files).write_parquet(path, compression="zstd")

    took = timed(job)
    with duckdb.connect() as connection:
        [(written,)] = connection.execute("SELECT count(*) FROM read_parquet(?)", [path]).fetchall()
    assert written == expected, f"{written} rows, not {expected}"
    return took


def _fresh() -> Table:
    return _catalog.load_table(_name)


def _asked(found: pa.Table, query: str) -> list[Any]:
    with duckdb.connect() as connection:
        connection.register("found", found)
        return connection.execute(query).fetchall()


def _checked(query: Callable[[], list[Any]], expected: int) -> float:
    rows: list[Any] = []
    took = timed(lambda: rows.extend(query()))
    assert len(rows) == expected, f"{len(rows)} rows, not {expected}"
    return took


if __name__ == "__main__":
    serve(
        {
            "open": open_table,
            "fill": fill,
            "point": point,
            "group": group,
            "location": location,
            "rewind": rewind,
            "overwrite": overwrite,
            "merge_in_duckdb": merge_in_duckdb,
        }
    )
