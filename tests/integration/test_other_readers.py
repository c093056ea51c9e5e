"""Other engines read what Firn wrote, and Firn sees at once what other writers commit."""

import importlib.util
import threading
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from service.model import wire
from service.model.names import TableName
from service.settings.kinds import Codec
from tests.harness import Firn
from tests.support.marks import thorough_after

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "small": {"type": "integer"},
        "ratio": {"type": "double"},
        "price": {"type": "decimal(20,4)"},
        "name": {"type": "string"},
        "active": {"type": "boolean"},
        "day": {"type": "date"},
        "local": {"type": "timestamp"},
        "moment": {"type": "timestamptz"},
        "raw": {"type": "binary"},
        "key": {"type": "uuid"},
        "tags": {"type": "array", "items": "string"},
        "scores": {"type": "map", "key_type": "string", "value_type": "long"},
        "address": {
            "type": "struct",
            "fields": {"city": {"type": "string"}, "lines": {"type": "array", "items": "string"}},
        },
    },
    "primary_key": ["id"],
}
FULL: dict[str, Any] = {
    "id": 2**63 - 1,
    "small": -(2**31),
    "ratio": 0.1,
    "price": "-1234567890123456.7890",
    "name": "Zoë «日本» 😀",
    "active": True,
    "day": "1969-12-31",
    "local": "2024-02-29T23:59:59.999999",
    "moment": "2024-02-29T22:59:59.000001Z",
    "raw": "AAEC/w==",
    "key": "12345678-1234-5678-1234-567812345678",
    "tags": ["a", None, ""],
    "scores": {"x": 1, "y": None},
    "address": {"city": "Ulm", "lines": ["1", "2"]},
}
NOTHING: dict[str, Any] = dict.fromkeys(SCHEMA["fields"])
RECORDS: list[dict[str, Any]] = [
    FULL,
    {**NOTHING, "id": 1},
    *({**FULL, "id": n, "name": f"n{n}", "small": n} for n in range(2, 8)),
]


def by_pyiceberg(firn: Firn, tenant: str) -> list[dict[str, Any]]:
    return sorted_rows(foreign(firn, tenant).scan().to_arrow())


def by_duckdb(firn: Firn, tenant: str) -> list[dict[str, Any]]:
    described = firn.ok({"operation": "DESCRIBE_TABLE", "tenant_id": tenant, "table": "t"})["description"]
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for extension in ("avro", "iceberg"):
            connection.load_extension(str(extension_path(extension)))
        query = "SELECT * FROM iceberg_scan(?)"
        return sorted_rows(connection.execute(query, [described["metadata_location"]]).to_arrow_table())


def extension_path(name: str) -> Path:
    """Where the wheel of this duckdb's own version keeps an extension."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec, f"duckdb-extension-{name} is not installed"
    assert spec.submodule_search_locations
    [found] = Path(spec.submodule_search_locations[0]).rglob(f"v{duckdb.__version__}/{name}.duckdb_extension")
    return found


def foreign(firn: Firn, tenant: str) -> Table:
    """The table as a PyIceberg of its own sees it, which knows nothing but where the catalog lies."""
    catalog = load_catalog("firn", type="sql", uri=f"sqlite:///{firn.home}/catalog.db?timeout=30")
    return catalog.load_table(TableName(tenant, "default", "t").identifier)


def deletes(firn: Firn, tenant: str) -> int:
    """How many delete files the table has."""
    snapshot = foreign(firn, tenant).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-delete-files"] or 0)


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def plain(value: Any) -> Any:
    """A Python value as the contract has it on the wire."""
    if isinstance(value, datetime):
        utc = value.utcoffset()
        return value.replace(tzinfo=None).isoformat() if utc is None else as_utc(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return wire.parse(wire.render(value))
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: plain(item) for key, item in value}
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def as_utc(moment: datetime) -> str:
    offset = moment.utcoffset()
    assert offset is not None
    return (moment.replace(tzinfo=None) - offset).isoformat() + "Z"


def by_firn(firn: Firn, tenant: str) -> list[dict[str, Any]]:
    rows = firn.rows(tenant, "t", sort=["id"])
    # JSON numbers come in exact; the others have them as floats.
    return [{**row, "ratio": None if row["ratio"] is None else float(row["ratio"])} for row in rows]


BY_MONTH_AND_BUCKET = [
    {"field": "day", "transform": "month"},
    {"field": "id", "transform": "bucket", "num_buckets": 2},
]


KINDS: list[tuple[str, Any]] = [
    ("merge_on_read", []),
    ("copy_on_write", []),
    ("merge_on_read", BY_MONTH_AND_BUCKET),
    ("copy_on_write", BY_MONTH_AND_BUCKET),
]


@pytest.mark.parametrize(("row_level", "partition"), thorough_after(1, KINDS), ids=str)
def test_pyiceberg_and_duckdb_alone_read_the_same_rows_after_every_kind_of_change(
    firn: Firn, tenant: str, row_level: str, partition: list[dict[str, Any]]
) -> None:
    table = {"tenant_id": tenant, "table": "t"}

    def agree(expected: list[dict[str, Any]]) -> None:
        expected = sorted(expected, key=lambda row: row["id"])
        assert by_firn(firn, tenant) == expected
        assert by_pyiceberg(firn, tenant) == expected
        assert by_duckdb(firn, tenant) == expected

    create = {"schema": SCHEMA, "partition": {"partitions": partition}, "properties": {"row_level": row_level}}
    firn.ok({"operation": "CREATE_TABLE", **table, **create})
    # Of a file with one row none is left to delete by its place.
    for records in [RECORDS] if row_level == "merge_on_read" else [[record] for record in RECORDS]:
        firn.ok({"operation": "WRITE", **table, "records": records})
    rows = RECORDS
    agree(rows)

    new = {"name": "changed", "tags": [], "address": {"city": None, "lines": None}, "day": "2024-03-01"}
    firn.ok({"operation": "UPDATE", **table, "updates": new, "filter": {"small": {"gte": 5}}})
    rows = [{**row, **new} if (row["small"] or 0) >= 5 else row for row in rows]
    agree(rows)

    firn.ok({"operation": "UPSERT", **table, "records": [{"id": 3, "name": "merged"}, {**NOTHING, "id": 100}]})
    rows = [{**row, "name": "merged"} if row["id"] == 3 else row for row in rows] + [{**NOTHING, "id": 100}]
    firn.ok({"operation": "DELETE", **table, "filter": {"id": {"in": [1, 2]}}})
    rows = [row for row in rows if row["id"] not in (1, 2)]
    agree(rows)
    assert bool(deletes(firn, tenant)) == (row_level == "merge_on_read")

    assert firn.ok({"operation": "COMPACT", **table, "force": True, "snapshot_retention_hours": 0})["compacted"]
    agree(rows)
    assert deletes(firn, tenant) == 0


def test_every_codec_is_read_by_others(firn: Firn, tenant: str) -> None:
    for codec in get_args(Codec):
        owner = f"{tenant}-{codec}"
        table = {"tenant_id": owner, "table": "t"}
        firn.ok({"operation": "CREATE_TABLE", **table, "schema": SCHEMA, "properties": {"compression": codec}})
        firn.ok({"operation": "WRITE", **table, "records": [FULL]})
        assert by_pyiceberg(firn, owner) == by_duckdb(firn, owner) == [FULL], codec


NUMBERS = {"fields": {"id": {"type": "long", "required": True}}}
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def append_elsewhere(firn: Firn, tenant: str, number: int) -> None:
    """A commit by another writer, which takes the table anew where it is beaten."""
    for _ in range(50):
        try:
            return foreign(firn, tenant).append(pa.table({"id": [number]}, schema=ARROW))
        except CommitFailedException:
            time.sleep(0.01)
    raise AssertionError("the other writer was beaten 50 times in a row")


def test_what_another_writer_commits_is_seen_at_once(firn: Firn, tenant: str) -> None:
    """No cache hides it: not from QUERY in either form, nor from what only reads metadata."""
    table = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **table, "schema": NUMBERS})
    for number in range(6):
        append_elsewhere(firn, tenant, number)
        expected = [{"id": n} for n in range(number + 1)]
        assert firn.rows(tenant, "t", sort=["id"]) == expected
        sql = {"operation": "QUERY", "tenant_id": tenant, "sql": "SELECT id FROM t ORDER BY id"}
        assert firn.ok(sql)["data"] == expected
        described = firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"]
        assert (described["row_count"], described["file_count"]) == (number + 1, number + 1)
    updated = firn.ok({"operation": "UPDATE", **table, "updates": {"id": 99}, "filter": {"id": 5}})
    assert updated["records_updated"] == 1
    append_elsewhere(firn, tenant, 7)
    assert firn.ok({"operation": "COMPACT", **table})["stats"]["files_before"] == 7


def test_another_writer_and_writes_side_by_side_lose_nothing(firn: Firn, tenant: str) -> None:
    table = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **table, "schema": NUMBERS})
    answers = []

    def client(number: int) -> None:
        for i in range(6):
            record = {"id": 1000 * number + i}
            answers.append(firn.post({"operation": "WRITE", **table, "records": [record]}))

    clients = [threading.Thread(target=client, args=(number,)) for number in (1, 2, 3)]
    for thread in clients:
        thread.start()
    for number in range(8):
        append_elsewhere(firn, tenant, number)
        assert {"id": number} in firn.rows(tenant, "t")
    for thread in clients:
        thread.join()
    assert [a for a in answers if not a["success"]] == []
    expected = [*range(8), *(1000 * number + i for number in (1, 2, 3) for i in range(6))]
    assert [row["id"] for row in firn.rows(tenant, "t", sort=["id"])] == expected
    assert [row["id"] for row in sorted_rows(foreign(firn, tenant).scan().to_arrow())] == expected
