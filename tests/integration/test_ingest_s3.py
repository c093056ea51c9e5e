"""How many files and requests to S3 a merged month or year saves; moto, in this process, counts them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx
import pyarrow.dataset as ds
import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

from service.catalog.tables import Catalog
from service.ingest.exports.exports import Exports
from service.model.names import CATALOG
from tests.harness import free_port
from tests.memory_catalog import MemoryCatalog
from tests.unit.ingest.test_merges import FIRST, Sales

BUCKET = "lake"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
EXPORTS = f"{BUCKET}/exports/sales"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@dataclass
class CountingS3:
    """An S3 that counts the requests it gets."""

    address: str
    calls: Counter[str] = field(default_factory=Counter)

    def wrap(self, app: Any) -> Any:
        def counted(environ: dict[str, Any], start: Any) -> Any:
            method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
            is_list = method == "GET" and environ["PATH_INFO"].strip("/") == BUCKET
            self.calls["LIST" if is_list or "list-type" in query else method] += 1
            return app(environ, start)

        return counted

    @property
    def properties(self) -> dict[str, str]:
        return {"s3.endpoint": self.address, "s3.path-style-access": "true", "s3.region": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingS3]:
    for name, value in {**KEYS, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = CountingS3(f"http://{host}:{port}")
    httpx.post(f"{found.address}/moto-api/reset").raise_for_status()
    boto3.client("s3", endpoint_url=found.address).create_bucket(Bucket=BUCKET)
    server._server.app = found.wrap(server._server.app)
    yield found
    server.stop()


@dataclass(frozen=True)
class Reading:
    """What reading all rows takes."""

    files: int
    ids: list[int]
    calls: Counter[str]


def read_exports(s3: CountingS3) -> Reading:
    """As a reader without Iceberg does: it lists the folder, and gets each file."""
    s3.calls.clear()
    storage = S3FileSystem(endpoint_override=s3.address, region="us-east-1")
    found = ds.dataset(EXPORTS, filesystem=storage, format="parquet")
    ids = sorted(found.to_table()["id"].to_pylist())
    return Reading(len(found.files), ids, Counter(s3.calls))


def read_table(s3: CountingS3, sales: Sales) -> Reading:
    """As a reader with Iceberg does: it gets the metadata, then each data file."""
    s3.calls.clear()
    scan = sales.table.iceberg.scan()
    files = len(list(scan.plan_files()))
    s3.calls.clear()
    ids = sorted(scan.to_arrow()["id"].to_pylist())
    return Reading(files, ids, Counter(s3.calls))


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("days", "months", "fewer"),
    [(31, 1, 97), (365, 12, 97)],
    ids=["a month", "a year"],
)
def test_after_the_merge_there_is_a_file_a_month_to_list_and_to_get(
    s3: CountingS3, tmp_path: Path, days: int, months: int, fewer: int
) -> None:
    catalog = Catalog(MemoryCatalog(CATALOG, warehouse=WAREHOUSE, **s3.properties), WAREHOUSE)
    first = date(2023, 1, 1)
    sales = Sales(
        tmp_path,
        catalog,
        strategy={"type": "monthly", "delete_source": True},
        storage={"type": "s3", "base_path": f"s3://{EXPORTS}/"},
        export=True,
    )
    for number in range(days):
        day = first + timedelta(number)
        sales.ingest((day - FIRST).days)
        assert sales.parts[Exports].after_ingest(sales.table, [day]) == []
    before = read_exports(s3), read_table(s3, sales)
    done = sales.compact(period="due")
    assert (len(done.periods or ()), done.periods_skipped, done.warnings) == (months, None, None)
    assert sum(one.source_files_deleted for one in done.periods or ()) == days
    after = read_exports(s3), read_table(s3, sales)
    for daily, monthly in zip(before, after, strict=True):
        assert (daily.files, monthly.files) == (days, months)
        assert round(100 * (1 - monthly.files / daily.files)) == fewer
        assert daily.ids == monthly.ids
        assert len(daily.ids) == days
        assert daily.calls["GET"] >= days
        assert monthly.calls["GET"] <= daily.calls["GET"] * 0.1
        assert monthly.calls["LIST"] <= daily.calls["LIST"]
    print({"exports": (before[0].calls, after[0].calls), "table": (before[1].calls, after[1].calls)})
