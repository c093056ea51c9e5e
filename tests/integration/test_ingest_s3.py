"""Ingestion tables on S3: exported files there, and how many files and requests a merged month or year saves."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.process import Process
from tests.harness import Firn
from tests.integration.test_s3_and_glue import REGION
from tests.integration.test_s3_and_glue import aws as aws  # the fixture
from tests.support.ingesting import COLUMNS, HEADER, row

TABLE = {"tenant_id": "acme", "namespace": "shop", "table": "sales"}
CONFIG = {
    "name": "sales",
    "storage": {"type": "s3", "base_path": "s3://lake/exports/sales/"},
    "compaction": {"strategy": {"delete_source": True}},
    "export": True,
}


@dataclass(frozen=True)
class Reading:
    """What a reader without Iceberg does to read a folder: a LIST for each page, a GET for each file."""

    calls: Counter[str]
    files: int
    ids: tuple[int, ...]


def read(address: str, prefix: str) -> Reading:
    calls: Counter[str] = Counter()
    client = boto3.client("s3", endpoint_url=address)
    client.meta.events.register("before-send.s3", lambda event_name, **_: calls.update([event_name.split(".")[-1]]))
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", []) if item["Key"].endswith(".parquet")]
    bodies = [client.get_object(Bucket="lake", Key=key)["Body"].read() for key in keys]
    ids = [i for body in bodies for i in pq.read_table(pa.BufferReader(body))["id"].to_pylist()]
    return Reading(calls, len(keys), tuple(sorted(ids)))


def merged(firn: Firn, address: str, folder: Path, first: date, days: int) -> tuple[list[Reading], list[Reading]]:
    """What reading the exported files and the table's data files takes, before and after the merge of all months."""
    firn.ok({"operation": "CREATE_TABLE", **TABLE, "config": CONFIG, "dataset": {"columns": COLUMNS}})
    for number in range(days):
        day = first + timedelta(number)
        source = folder / f"{day}.csv"
        source.write_text(HEADER + row(number))
        firn.ok({"operation": "INGEST", **TABLE, "source": str(source), "date": str(day)})
    described: Any = firn.ok({"operation": "DESCRIBE_TABLE", **TABLE})["description"]
    data = described["metadata_location"].removeprefix("s3://lake/").partition("/metadata/")[0] + "/data/"
    places = ("exports/sales/", data)
    before = [read(address, place) for place in places]
    done = firn.ok({"operation": "COMPACT", **TABLE, "period": "due"})
    assert sum(one["source_files_deleted"] for one in done["periods"]) == days
    return before, [read(address, place) for place in places]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("first", "days", "months"),
    [
        (date(2024, 1, 1), 31, 1),
        pytest.param(date(2023, 1, 1), 365, 12, marks=pytest.mark.thorough),
    ],
)
def test_after_the_merge_a_reader_lists_and_gets_one_file_a_month(
    aws: str, tmp_path: Path, first: date, days: int, months: int
) -> None:
    properties = {"s3.endpoint": aws, "glue.endpoint": aws, "s3.path-style-access": "true", "client.region": REGION}
    settings = {
        "CATALOG__TYPE": "glue",
        "CATALOG__WAREHOUSE": "s3://lake/warehouse",
        "CATALOG__PROPERTIES": json.dumps(properties),
    }
    with Process(tmp_path / "home", **settings) as process:
        process.wait_until_ready()
        before, after = merged(process.firn, aws, tmp_path, first, days)
    for daily, monthly in zip(before, after, strict=True):
        assert (daily.files, daily.calls) == (days, {"ListObjectsV2": 1, "GetObject": days})
        assert (monthly.files, monthly.calls) == (months, {"ListObjectsV2": 1, "GetObject": months})
        assert round(100 * (1 - monthly.files / daily.files)) == 97
        assert daily.ids == monthly.ids == tuple(range(days))
