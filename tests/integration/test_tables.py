"""What a request says of a table is what Iceberg keeps of it: properties, partitions, history, folders, tenants."""

import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, get_args
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from service.catalog.tables import Catalog, Table
from service.model.names import TableName
from service.model.schema.types import Field, Primitive, TableSchema
from service.settings.kinds import Codec
from tests.harness import Firn
from tests.support.marks import thorough_after

PAGES = {"fields": {"id": {"type": "long", "required": True}, "page": {"type": "string"}}}


def create(firn: Firn, tenant: str, table: str, schema: dict[str, Any] = PAGES, **fields: Any) -> None:
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": table, "schema": schema, **fields})


def write(firn: Firn, tenant: str, table: str, *records: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": table, "records": list(records), **fields})


def drop(firn: Firn, tenant: str, table: str, **fields: Any) -> dict[str, Any]:
    return firn.ok({"operation": "DROP_TABLE", "tenant_id": tenant, "table": table, **fields})


def kept(firn: Firn, tenant: str, table: str) -> Table:
    return firn.app.parts[Catalog].load(TableName(tenant, "default", table))


def folder(table: Table) -> Path:
    return Path(urlparse(table.location).path)


def footers(table: Table) -> list[pq.FileMetaData]:
    return [pq.read_metadata(path) for path in sorted(folder(table).rglob("*.parquet"))]


@pytest.mark.parametrize("codec", get_args(Codec))
def test_the_codec_asked_for_is_the_one_in_the_files(firn: Firn, tenant: str, codec: str) -> None:
    create(firn, tenant, "t", properties={"compression": codec})
    write(firn, tenant, "t", {"id": 1, "page": "/" * 1000})
    [footer] = footers(kept(firn, tenant, "t"))
    used = {footer.row_group(0).column(i).compression for i in range(footer.num_columns)}
    assert used == {codec.upper()}
    assert firn.rows(tenant, "t") == [{"id": 1, "page": "/" * 1000}]


def test_without_a_codec_the_files_have_the_configured_one(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    write(firn, tenant, "t", {"id": 1, "page": "/"})
    [footer] = footers(kept(firn, tenant, "t"))
    assert footer.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.thorough
def test_row_groups_have_the_configured_size(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    limit = firn.app.settings.iceberg.write.parquet_row_group_size * 1024
    noise = Random(1)
    write(firn, tenant, "t", *({"id": i, "page": noise.randbytes(2000).hex()} for i in range(limit * 2 // 4000)))
    [footer] = footers(kept(firn, tenant, "t"))
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    # The size before compression, which halves this text.
    sizes = [group.total_byte_size for group in groups]
    assert 2 <= len(sizes) <= 5, sizes
    assert max(sizes) <= limit * 1.2, sizes
    assert sum(group.column(1).total_compressed_size for group in groups) < limit * 1.2


def test_tables_are_format_2_and_their_metadata_stays_bounded(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    for i in range(14):
        write(firn, tenant, "t", {"id": i})
    table = kept(firn, tenant, "t")
    assert table.iceberg.metadata.format_version == 2
    files = list((folder(table) / "metadata").glob("*.metadata.json"))
    assert len(files) <= 11, len(files)
    assert len(table.iceberg.metadata.metadata_log) <= 10


def test_properties_come_back_as_they_were_given(firn: Firn, tenant: str) -> None:
    given = {
        "compression": "gzip",
        "description": "pages, «read» once",
        "target_file_size_mb": 7,
        "small_file_threshold_mb": 2,
        "enabled": False,
    }
    create(firn, tenant, "t", properties=given)
    described = firn.ok({"operation": "DESCRIBE_TABLE", "tenant_id": tenant, "table": "t"})["description"]
    assert described["properties"] == {
        "file_format": "parquet",
        "compression": "gzip",
        "description": "pages, «read» once",
        "target_file_size_mb": 7,
        "compaction": {"enabled": False, "small_file_threshold_mb": 2},
    }


VISITS: dict[str, Any] = {
    "fields": {
        "id": {"type": "long", "required": True},
        "country": {"type": "string"},
        "day": {"type": "date"},
        "at": {"type": "timestamp"},
        "seen": {"type": "timestamptz"},
        "price": {"type": "decimal(9,2)"},
        "place": {"type": "struct", "fields": {"city": {"type": "string"}}},
    }
}
VISIT: list[dict[str, Any]] = [
    {"id": 0},
    *(
        {
            "id": n,
            "country": ("de", "at", "", "日本")[n % 4],
            "day": ("1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01")[n % 4],
            "at": ("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2024-02-29T12:00:00", "2024-02-29T13:00:00")[
                n % 4
            ],
            "seen": ("1969-12-31T23:30:00Z", "1970-01-01T00:30:00Z", "2024-02-29T12:00:00Z", "2025-01-01T00:00:00Z")[
                n % 4
            ],
            "price": ("-0.01", "0.00", "9.99", "10.00")[n % 4],
            "place": {"city": ("Ulm", "Graz", "Ulm", "Graz")[n % 4]},
        }
        for n in range(1, 9)
    ),
]


@pytest.mark.parametrize(
    ("by", "partitions"),
    thorough_after(
        7,
        [
            ([{"field": "country", "transform": "identity"}], 5),
            ([{"field": "at", "transform": "month"}], 4),
            ([{"field": "seen", "transform": "day"}], 5),
            ([{"field": "price", "transform": "truncate", "width": 50}], 5),
            ([{"field": "place.city", "transform": "truncate", "width": 2}], 3),
            ([{"field": "price", "transform": "bucket", "num_buckets": 3}], None),
            ([{"field": "day", "transform": "month"}, {"field": "country", "transform": "identity"}], None),
            ([{"field": "id", "transform": "identity"}], 9),
            ([{"field": "day", "transform": "identity"}], 5),
            ([{"field": "day", "transform": "year"}], 4),
            ([{"field": "at", "transform": "hour"}], 5),
            ([{"field": "id", "transform": "truncate", "width": 3}], 3),
            ([{"field": "country", "transform": "truncate", "width": 1}], 5),
            ([{"field": "country", "transform": "bucket", "num_buckets": 4}], None),
            ([{"field": "seen", "transform": "bucket", "num_buckets": 2}], None),
        ],
    ),
    ids=lambda by: "+".join(f"{b['transform']}({b['field']})" for b in by) if isinstance(by, list) else "",
)
def test_rows_go_into_their_partitions_and_come_back(
    firn: Firn, tenant: str, by: list[dict[str, Any]], partitions: int | None
) -> None:
    create(firn, tenant, "t", VISITS, partition={"partitions": by})
    write(firn, tenant, "t", *VISIT)
    assert firn.rows(tenant, "t", sort=["id"]) == [{**dict.fromkeys(VISITS["fields"]), **v} for v in VISIT]
    table = kept(firn, tenant, "t")
    assert [f.transform for f in table.partition] == [b["transform"] for b in by]
    listed = table.iceberg.inspect.partitions().to_pylist()
    assert sum(p["record_count"] for p in listed) == len(VISIT)
    # One write makes one file in each partition that it has rows for.
    assert all(p["file_count"] == 1 for p in listed), listed
    if partitions:
        assert len(listed) == partitions, listed


def test_a_filter_reads_only_the_partitions_that_can_match(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", VISITS, partition={"partitions": [{"field": "at", "transform": "day"}]})
    write(firn, tenant, "t", *VISIT)
    query = {"operation": "QUERY", "tenant_id": tenant, "table": "t"}
    whole = firn.ok(query)["metadata"]
    some = firn.ok({**query, "filter": {"at": {"gte": "2024-01-01T00:00:00"}}})["metadata"]
    assert (whole["scanned_files"], some["scanned_files"]) == (4, 1)
    assert some["scanned_bytes"] < whole["scanned_bytes"]


def test_every_fifth_write_counts_small_files_and_no_other(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    answers = [write(firn, tenant, "t", {"id": i}) for i in range(10)]
    assert [a.get("small_files_count") for a in answers] == [None] * 4 + [5] + [None] * 4 + [10]
    assert [a["compaction_recommended"] for a in answers] == [False] * 4 + [True] + [False] * 4 + [True]


def test_a_refused_or_empty_write_is_not_counted(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", properties={"opportunistic_check_interval": 2})
    write(firn, tenant, "t", {"id": 1})
    refused = {"operation": "WRITE", "tenant_id": tenant, "table": "t", "records": [{"id": "no"}]}
    firn.fail(refused, "INVALID_RECORD", 400)
    assert "small_files_count" not in write(firn, tenant, "t")
    assert write(firn, tenant, "t", {"id": 2})["small_files_count"] == 2


@pytest.mark.parametrize(
    ("properties", "counts", "recommended"),
    [
        ({"opportunistic_check_interval": 2}, [None, 2, None, 4], [False, False, False, True]),
        ({"compaction": {"opportunistic_check_interval": 1}}, [1, 2, 3, 4], [False, False, True, True]),
        ({"opportunistic_check_interval": 1, "min_files_to_compact": 4}, [1, 2, 3, 4], [False] * 3 + [True]),
        ({"opportunistic_check_interval": 1, "enabled": False}, [None] * 4, [False] * 4),
    ],
)
def test_a_table_may_check_by_its_own_rules(
    firn: Firn, tenant: str, properties: dict[str, Any], counts: list[int | None], recommended: list[bool]
) -> None:
    create(firn, tenant, "t", properties=properties)
    answers = [write(firn, tenant, "t", {"id": i}) for i in range(4)]
    assert [a.get("small_files_count") for a in answers] == counts
    assert [a["compaction_recommended"] for a in answers] == recommended


def test_small_files_are_worth_merging_only_within_one_partition(firn: Firn, tenant: str) -> None:
    by = {"partitions": [{"field": "page", "transform": "identity"}]}
    create(firn, tenant, "t", partition=by, properties={"opportunistic_check_interval": 1})
    write(firn, tenant, "t", {"id": 1, "page": "a"}, {"id": 2, "page": "b"})
    answer = write(firn, tenant, "t", {"id": 3, "page": "b"}, {"id": 4, "page": "c"})
    assert (answer["small_files_count"], answer["compaction_recommended"]) == (4, False)
    answer = write(firn, tenant, "t", {"id": 5, "page": "b"})
    assert (answer["small_files_count"], answer["compaction_recommended"]) == (5, True)


def test_drop_keeps_the_files_and_purge_removes_them(firn: Firn, tenant: str) -> None:
    folders = {}
    for name in ("kept", "purged"):
        create(firn, tenant, name)
        write(firn, tenant, name, {"id": 1})
        folders[name] = folder(kept(firn, tenant, name))
    drop(firn, tenant, "kept")
    refused = {"operation": "DROP_TABLE", "tenant_id": tenant, "table": "purged", "purge": True}
    firn.fail(refused, "CONFIRMATION_REQUIRED", 400)
    assert firn.rows(tenant, "purged") == [{"id": 1, "page": None}]
    drop(firn, tenant, "purged", purge=True, confirm=True)
    assert list(folders["kept"].rglob("*.parquet"))
    assert not folders["purged"].exists()
    assert firn.ok({"operation": "LIST_TABLES", "tenant_id": tenant})["tables"] == []


@pytest.mark.parametrize("purge", [False, True])
def test_a_table_made_again_is_another_table(firn: Firn, tenant: str, purge: bool) -> None:
    """Nothing of the first life shows in the second: rows, columns, write counts or folder."""
    create(firn, tenant, "t")
    for i in range(3):
        write(firn, tenant, "t", {"id": i})
    first = kept(firn, tenant, "t")
    drop(firn, tenant, "t", purge=purge, confirm=True)
    create(firn, tenant, "t", {"fields": {"other": {"type": "string"}}})
    assert firn.rows(tenant, "t") == []
    answers = [write(firn, tenant, "t", {"other": str(i)}) for i in range(5)]
    assert [a.get("small_files_count") for a in answers] == [None] * 4 + [5]
    second = kept(firn, tenant, "t")
    assert first.uuid != second.uuid
    assert first.location != second.location
    # Removing the first life for good must not touch the second.
    drop(firn, tenant, "t", purge=True, confirm=True)
    assert folder(first).exists() is not purge


def test_rows_as_of_a_snapshot_and_a_time(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    before = datetime.now(UTC)
    snapshots, times = [], []
    for i in range(3):
        snapshots.append(write(firn, tenant, "t", {"id": i})["metadata"]["snapshot_id"])
        time.sleep(0.01)
        times.append(datetime.now(UTC))
        time.sleep(0.01)
    for i in range(3):
        expected = [{"id": n} for n in range(i + 1)]
        for moment in (
            snapshots[i],
            int(snapshots[i]),
            times[i].isoformat(),
            times[i].replace(tzinfo=None).isoformat(),
        ):
            assert firn.rows(tenant, "t", projection=["id"], sort=["id"], as_of=moment) == expected, moment
            sql = {"operation": "QUERY", "tenant_id": tenant, "sql": "SELECT id FROM t ORDER BY id", "as_of": moment}
            assert firn.ok(sql)["data"] == expected, moment
    for moment in (before.isoformat(), 1):
        query = {"operation": "QUERY", "tenant_id": tenant, "table": "t", "as_of": moment}
        assert firn.fail(query, "SNAPSHOT_NOT_FOUND", 404)["field"] == "as_of"


@pytest.mark.parametrize(
    ("one", "other"), thorough_after(2, [("a-b", "a_b"), ("a_2d", "a-"), ("A", "a"), ("a__b", "a"), ("a__2", "a-")])
)
def test_tenants_with_like_names_cannot_meet(firn: Firn, tenant: str, one: str, other: str) -> None:
    owners = {f"{tenant}{one}": 1, f"{tenant}{other}": 2}
    for owner, number in owners.items():
        create(firn, owner, "t")
        write(firn, owner, "t", {"id": number, "page": owner})
    for owner, number in owners.items():
        assert firn.rows(owner, "t") == [{"id": number, "page": owner}]
    drop(firn, f"{tenant}{one}", "t", purge=True, confirm=True)
    assert firn.rows(f"{tenant}{other}", "t") == [{"id": 2, "page": f"{tenant}{other}"}]
    assert firn.ok({"operation": "LIST_TABLES", "tenant_id": f"{tenant}{one}"})["tables"] == []


def test_namespaces_and_tables_with_like_names_cannot_meet(firn: Firn, tenant: str) -> None:
    places = [(n, t) for n in ("n-1", "n_1", "N-1") for t in ("t", "T", "t-", "t_")]
    for i, (namespace, table) in enumerate(places):
        create(firn, tenant, table, namespace=namespace)
        write(firn, tenant, table, {"id": i}, namespace=namespace)
    for i, (namespace, table) in enumerate(places):
        assert firn.rows(tenant, table, namespace=namespace, projection=["id"]) == [{"id": i}]
    listed = firn.ok({"operation": "LIST_TABLES", "tenant_id": tenant, "namespace": "n_1"})["tables"]
    assert listed == ["T", "t", "t-", "t_"]


def test_a_table_may_be_called_as_icebergs_metadata_tables_and_selectors_are(firn: Firn, tenant: str) -> None:
    for i, name in enumerate(
        ("all_files", "tag_main", "snapshot_id_1", "at_timestamp_1", "history", "order", "default")
    ):
        create(firn, tenant, name)
        write(firn, tenant, name, {"id": i})
        assert firn.rows(tenant, name, projection=["id"]) == [{"id": i}], name


METADATA = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")


@pytest.mark.parametrize("name", thorough_after(2, METADATA))
def test_a_table_with_a_column_that_is_called_as_a_metadata_column_can_be_read_once_that_is_renamed(
    firn: Firn, tenant: str, name: str
) -> None:
    """No request makes such a table, but another program can."""
    schema = TableSchema((Field("id", Primitive("long")), Field(name, Primitive("string"))))
    firn.app.parts[Catalog].create(TableName(tenant, "default", "t"), schema, (), {})
    write(firn, tenant, "t", {"id": 1, name: "a"})
    query = {"operation": "QUERY", "tenant_id": tenant, "table": "t"}
    assert "rename_columns" in firn.fail(query, "INVALID_SCHEMA")["message"]
    alter = {"operation": "ALTER_TABLE", "tenant_id": tenant, "table": "t"}
    firn.ok({**alter, "rename_columns": {name: "other"}})
    assert firn.rows(tenant, "t") == [{"id": 1, "other": "a"}]
    for change in ({"rename_columns": {"other": name}}, {"add_columns": {name: {"type": "string"}}}):
        assert repr(name) in firn.fail({**alter, **change}, "INVALID_SCHEMA")["message"]
    refused = {"tenant_id": tenant, "table": "u", "schema": {"fields": {name: {"type": "string"}}}}
    assert repr(name) in firn.fail({"operation": "CREATE_TABLE", **refused}, "INVALID_SCHEMA")["message"]


def test_a_field_of_a_struct_may_be_called_as_a_metadata_column(firn: Firn, tenant: str) -> None:
    place = {"type": "struct", "fields": {name: {"type": "string"} for name in METADATA}}
    create(firn, tenant, "t", {"fields": {**PAGES["fields"], "place": place}})
    rows = [{"id": i, "page": "x", "place": dict.fromkeys(METADATA, str(i))} for i in range(4)]
    write(firn, tenant, "t", *rows)
    edit = {"tenant_id": tenant, "table": "t", "filter": {"place._file": "2"}}
    firn.ok({"operation": "UPDATE", **edit, "updates": {"page": "y"}})
    firn.ok({"operation": "DELETE", **{**edit, "filter": {"place._pos": "3"}}})
    assert firn.rows(tenant, "t", sort=["id"]) == [rows[0], rows[1], {**rows[2], "page": "y"}]
