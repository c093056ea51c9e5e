"""The grown shape: tables on S3, registered in Glue; only configuration differs. Both are moto's, in this process."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from service.catalog.connect import connect
from service.commits.commit import Commits
from service.errors import InvalidFile
from service.ingest.sources.fetch import Source, fetch
from service.ledger.ledger import Ledger
from service.ledger.table_records import TableRecords
from service.model.call import Call
from service.settings import DroppedTableSettings, load
from service.tables.life import TableLifecycle
from tests.faults.process import Process
from tests.harness import Firn, free_port
from tests.unit.iceberg_tables import append, make_table

REGION = "eu-central-1"
FOLDER = "warehouse/acme_1__shop__446/"
TABLE = {"tenant_id": "Acme-1", "namespace": "shop", "table": "Orders"}
SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "country": {"type": "string"},
        "price": {"type": "decimal(10,2)"},
        "at": {"type": "timestamptz"},
    },
    "primary_key": ["id"],
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 and a Glue that know one bucket, `lake`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    httpx.post(f"{address}/moto-api/reset").raise_for_status()  # of what another test left in this process
    s3(address).create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": REGION})
    yield address
    server.stop()


def s3(address: str) -> Any:
    return boto3.client("s3", endpoint_url=address)


def objects(address: str, ending: str, folder: str = FOLDER) -> list[str]:
    pages = s3(address).get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=folder)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    # Arrow leaves an empty object where a folder was.
    return [key for key in keys if key.endswith(ending) and not key.endswith("/")]


def made_days_ago(key: str, days: int) -> None:
    """Have the S3, which is in this process, say that an object is older than it is."""
    [lake] = [backend["global"].buckets["lake"] for backend in s3_backends.values() if backend["global"].buckets]
    lake.keys[key].last_modified -= timedelta(days=days)


class Lake:
    """A table on S3 with a file that nothing refers to, and what else is there whose name begins likewise."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        properties = {"s3.endpoint": address, "s3.path-style-access": "true", "s3.region": REGION}
        settings = {"CATALOG__WAREHOUSE": "s3://lake/warehouse", "CATALOG__PROPERTIES": json.dumps(properties)}
        self.catalog = connect(load({"FIRN_HOME": str(home), **{f"FIRN_{key}": v for key, v in settings.items()}}))
        self.table = make_table(self.catalog)
        append(self.table, None)
        self.folder = self.table.location.removeprefix("s3://lake/")
        self.others = [f"{self.folder}0/data/a.parquet", f"{self.folder}.parquet"]
        for key in (f"{self.folder}/data/nobodys.parquet", *self.others):
            s3(address).put_object(Bucket="lake", Key=key, Body=b"junk")
        ledger = Ledger(f"sqlite:///{home / 'ledger.db'}")
        commits, lives = Commits(self.catalog, ledger), TableRecords(ledger)
        self.life = TableLifecycle(DroppedTableSettings(), self.catalog, commits, lives)

    def left(self) -> list[str]:
        """What there is where the table was, and beside it."""
        return objects(self.address, "", self.folder)


@pytest.fixture
def lake(aws: str, tmp_path: Path) -> Lake:
    return Lake(aws, tmp_path)


def test_a_file_to_ingest_is_fetched_from_s3(aws: str, tmp_path: Path) -> None:
    properties = {"s3.endpoint": aws, "s3.region": REGION, "s3.force-virtual-addressing": "false"}
    content = gzip.compress(b"id\n1\n")
    s3(aws).put_object(Bucket="lake", Key="daily/a b.csv.gz", Body=content)
    found = fetch(Source("s3://lake/daily/a b.csv.gz", "a"), tmp_path, properties, quote='"')
    assert (found.format, found.bytes, found.path.read_bytes()) == ("csv", len(content), b"id\n1\n")
    assert found.content_hash == hashlib.sha256(content).hexdigest()
    for key in ("none.csv", "daily"):
        with pytest.raises(InvalidFile, match="does not exist"):
            fetch(Source(f"s3://lake/{key}", key), tmp_path, properties, quote='"')


def test_a_purge_leaves_nothing_of_the_tables_and_all_of_others(lake: Lake) -> None:
    assert len(lake.left()) > len(lake.others)
    assert lake.life.drop(lake.table.name, Call("r"), purge=True).purged
    assert lake.left() == sorted(lake.others)


def test_a_purge_that_ended_right_after_the_catalog_forgot_the_table_is_finished_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(identifier: Any) -> None:
        lake.catalog.iceberg.drop_table(identifier)
        raise ConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(lake.catalog.iceberg, "purge_table", cut_short)
        assert not lake.life.drop(lake.table.name, Call("r"), purge=True).purged
    assert len(lake.left()) > len(lake.others)
    assert lake.life.remove_overdue() == 1
    assert lake.left() == sorted(lake.others)
    assert lake.life.remove_overdue() == 0


def test_a_folder_that_may_be_others_too_keeps_what_no_metadata_names(lake: Lake) -> None:
    before = lake.left()
    for location in ("s3://lake", "s3://lake/", "s3://lake/warehouse", f"s3://lake/{lake.folder}/data"):
        lake.catalog.remove_folder(location)
    assert lake.left() == before


def rows(firn: Firn, **query: Any) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = firn.ok({"operation": "QUERY", **TABLE, "sort": ["id"], **query})["data"]
    return data


@pytest.mark.timeout(300)
def test_every_operation_works_on_s3_and_glue(aws: str, tmp_path: Path) -> None:
    properties = {
        "s3.endpoint": aws,
        "glue.endpoint": aws,
        "s3.path-style-access": "true",
        "client.region": REGION,
    }
    settings = {
        "CATALOG__TYPE": "glue",
        "CATALOG__WAREHOUSE": "s3://lake/warehouse",
        "CATALOG__PROPERTIES": json.dumps(properties),
    }
    with Process(tmp_path / "home", **settings) as process:
        process.wait_until_ready()
        firn = process.firn
        by_country = {"partitions": [{"field": "country", "transform": "identity"}]}
        firn.ok({"operation": "CREATE_TABLE", **TABLE, "schema": SCHEMA, "partition": by_country})
        firn.fail({"operation": "CREATE_TABLE", **TABLE, "schema": SCHEMA}, "TABLE_EXISTS", 409)
        records = [{"id": n, "country": "de", "price": f"{n}.50", "at": "2024-05-01T10:00:00Z"} for n in range(5)]
        answers = [firn.ok({"operation": "WRITE", **TABLE, "records": [record]}) for record in records]
        assert (answers[-1]["compaction_recommended"], answers[-1]["small_files_count"]) == (True, 5)
        assert rows(firn) == records
        assert rows(firn, projection=["id"], filter={"price": {"gt": "2.50"}}) == [{"id": 3}, {"id": 4}]

        updated = firn.ok({"operation": "UPDATE", **TABLE, "updates": {"country": "at"}, "filter": {"id": 4}})
        upserted = firn.ok({"operation": "UPSERT", **TABLE, "records": [{"id": 0, "price": 9}, {"id": 5}]})
        deleted = firn.ok({"operation": "DELETE", **TABLE, "filter": {"id": 1}})
        assert updated["records_updated"] == 1
        assert (upserted["records_inserted"], upserted["records_updated"]) == (1, 1)
        assert deleted["records_deleted"] == 1
        expected = [(0, "de", "9.00"), (2, "de", "2.50"), (3, "de", "3.50"), (4, "at", "4.50"), (5, None, None)]
        assert [(r["id"], r["country"], r["price"]) for r in rows(firn)] == expected

        before = {*objects(aws, ".parquet"), *objects(aws, ".avro")}
        compacted = firn.ok({"operation": "COMPACT", **TABLE, "force": True, "snapshot_retention_hours": 0})
        described = firn.ok({"operation": "DESCRIBE_TABLE", **TABLE})["description"]
        assert compacted["compacted"] is True
        assert compacted["stats"]["files_after"] == described["file_count"] == 3
        assert (described["row_count"], described["snapshot_count"]) == (5, 1)
        assert described["metadata_location"].startswith("s3://lake/warehouse/")
        assert [(r["id"], r["country"], r["price"]) for r in rows(firn)] == expected
        # What only expired snapshots used is gone from the bucket.
        assert len(objects(aws, ".parquet")) == 3
        gone = before - {*objects(aws, ".parquet"), *objects(aws, ".avro")}
        assert compacted["stats"]["expired_files_deleted"] == len(gone) > 10

        folder = described["metadata_location"].removeprefix("s3://lake/").partition("/metadata/")[0]
        live = objects(aws, "")
        old = [f"{folder}/data/old/a b%20é.parquet", f"{folder}/metadata/_old.avro"]
        young = f"{folder}/data/young.parquet"
        for key in (*old, young):
            s3(aws).put_object(Bucket="lake", Key=key, Body=b"junk")
        for key in (*old, *live):
            made_days_ago(key, 4)
        clean = {"operation": "CLEAN_ORPHANS", **TABLE}
        assert firn.ok({**clean, "dry_run": True})["plan"]["files_removed"] == 2
        cleaned = firn.ok(clean)
        assert (cleaned["files_removed"], cleaned["bytes"]) == (2, 8)
        assert cleaned["files"] == ["data/old/a b%20é.parquet", "metadata/_old.avro"]
        assert sorted(objects(aws, "")) == sorted([*live, young])
        made_days_ago(young, 4)
        assert firn.ok(clean)["files"] == ["data/young.parquet"]
        assert sorted(objects(aws, "")) == sorted(live)
        # Whoever else may write to a Glue catalog's tables is not seen.
        assert firn.fail({**clean, "older_than_hours": 23}, "INVALID_REQUEST")["field"] == "older_than_hours"
        assert [(r["id"], r["country"], r["price"]) for r in rows(firn)] == expected

        emptied = firn.ok({"operation": "DELETE", **TABLE, "all": True, "create_backup": True})
        backup = {**TABLE, "name": emptied["backup"]}
        [kept] = firn.ok({"operation": "LIST_BACKUPS", **TABLE})["backups"]
        assert (kept["name"], kept["records"], kept["files"]) == (emptied["backup"], 5, 3)
        restored = firn.ok({"operation": "RESTORE_BACKUP", **backup})
        assert (restored["records_before"], restored["records_after"]) == (0, 5)
        assert [(r["id"], r["country"], r["price"]) for r in rows(firn)] == expected
        firn.ok({"operation": "DELETE_BACKUP", **backup})
        assert firn.ok({"operation": "LIST_BACKUPS", **TABLE})["backups"] == []

        listed = {"operation": "LIST_TABLES", "tenant_id": "Acme-1", "namespace": "shop"}
        assert firn.ok(listed)["tables"] == ["Orders"]
        firn.ok({"operation": "ALTER_TABLE", **TABLE, "rename_columns": {"country": "land"}})
        firn.ok({"operation": "RENAME_TABLE", **TABLE, "new_name": "Sales"})
        firn.ok({"operation": "DROP_TABLE", **TABLE, "table": "Sales"})
        assert firn.ok(listed)["tables"] == []
        firn.ok({"operation": "RESTORE_TABLE", **TABLE, "table": "Sales", "new_name": "Orders"})
        assert [(r["id"], r["land"], r["price"]) for r in rows(firn)] == expected
        firn.ok({"operation": "REINITIALISE_TABLE", **TABLE, "delete_partitions": True, "confirm": True})
        assert rows(firn) == []
        firn.ok({"operation": "DROP_TABLE", **TABLE, "purge": True, "confirm": True})
        assert firn.ok(listed)["tables"] == []
        assert objects(aws, "") == []
        firn.fail({"operation": "QUERY", **TABLE}, "TABLE_NOT_FOUND", 404)
        process.terminate()
        assert process.exit_code(30) == 0
