"""Changes of one row in a hundred of a large table open the files of the partitions they are kept to, and no others."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.harness import Firn

DAYS = 100
FIELDS = {
    "id": {"type": "long", "required": True},
    "day": {"type": "integer", "required": True},
    "bid": {"type": "double"},
    "ask": {"type": "double"},
    "spread": {"type": "double"},
}
ARROW = "application/vnd.apache.arrow.stream"
_CHUNK = 1_000_000


def quotes(first: int, count: int, rows: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array((i * DAYS // rows for i in ids), pa.int32()),
            "bid": pa.array((float(i % 97) for i in ids), pa.float64()),
            "ask": pa.array((float(i % 97 + i % 3) for i in ids), pa.float64()),
            "spread": pa.nulls(count, pa.float64()),
        }
    )


class Quotes:
    """A table of so many rows, a hundredth of them in each partition."""

    def __init__(self, firn: Firn, tenant: str, rows: int) -> None:
        self.firn, self.rows = firn, rows
        self.address = {"tenant_id": tenant, "table": "quotes"}
        by_day = {"partitions": [{"field": "day"}]}
        firn.ok({"operation": "CREATE_TABLE", **self.address, "schema": {"fields": FIELDS}, "partition": by_day})
        for first in range(0, rows, _CHUNK):
            sink = pa.BufferOutputStream()
            table = quotes(first, min(_CHUNK, rows - first), rows)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            path = f"/tables/{tenant}/default/quotes/records"
            sent = firn.client.post(
                path, content=sink.getvalue().to_pybytes(), headers={"Content-Type": ARROW}, timeout=600
            )
            assert sent.status_code == 200, sent.text

    def files_of(self, *days: int) -> int:
        listed = self.firn.ok({"operation": "LIST_PARTITIONS", **self.address, "limit": 1000})["partitions"]
        return sum(int(p["files"]) for p in listed if p["partition"]["day"] in days)

    def figures(self) -> dict[str, Any]:
        sql = "SELECT count(*) AS n, sum(id) AS ids, sum(spread) AS spreads, count(spread) AS known FROM quotes"
        [row] = self.firn.ok({"operation": "QUERY", "tenant_id": self.address["tenant_id"], "sql": sql})["data"]
        return dict(row)

    def change(self, operation: str, day: int, **parts: Any) -> dict[str, Any]:
        """A change kept to one day, first as a dry run: both say the same, and only that day's files are opened."""
        request = {"operation": operation, **self.address, "partition_filter": {"day": day}, **parts}
        before, files = self.figures(), self.files_of(day)
        dry = self.firn.ok({**request, "dry_run": True})["plan"]
        assert self.figures() == before
        done = self.firn.ok({**request, "plan_token": dry["plan_token"]})
        counted = {key for key in done if key.startswith("records_")}
        assert counted
        assert {key: done[key] for key in counted} == {key: dry[key] for key in counted}
        assert 0 < files < DAYS
        assert (dry["scanned_files"], done["scanned_files"]) == (files, files)
        assert (done["partitions_affected"], done["files_affected"]) == (1, files)
        return done


@pytest.fixture(
    params=[
        pytest.param(500_000, marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param(5_000_000, marks=[pytest.mark.large, pytest.mark.timeout(3000)]),
    ]
)
def table(request: pytest.FixtureRequest, firn: Firn, tenant: str) -> Iterator[Quotes]:
    made = Quotes(firn, tenant, request.param)
    yield made
    firn.ok({"operation": "DROP_TABLE", **made.address, "purge": True, "confirm": True})


def test_one_row_in_a_hundred_is_changed_by_reading_its_partition_only(table: Quotes) -> None:
    share, rows = table.rows // DAYS, table.rows

    spread = {"expression": "(ask - bid) * 10000 / (bid + 1)"}
    update = table.change("UPDATE", 7, filter={"expression": "ask > bid"}, updates={"spread": spread})
    wider = [i for i in range(7 * share, 8 * share) if i % 3]
    assert update["records_updated"] == len(wider)
    wanted = sum((i % 3) * 10000 / (i % 97 + 1) for i in wider)
    assert float(table.figures()["spreads"]) == pytest.approx(wanted)

    first = 40 * share
    half = min(share // 2, 5000)
    records = [{"id": i, "day": 40, "bid": 1.5} for i in range(first, first + half)]
    new = [{"id": rows + i, "day": 40, "bid": 2.5, "ask": 2.5} for i in range(10)]
    upsert = table.change("UPSERT", 40, records=[*records, *new], key_cols=["id"], update_cols=["bid"])
    assert (upsert["records_updated"], upsert["records_inserted"]) == (half, len(new))

    delete = table.change("DELETE", 99, filter={"id": {"gte": 0}})
    assert delete["records_deleted"] == share
    assert table.figures()["n"] == rows + len(new) - share

    removed = table.firn.ok({"operation": "UNDO", **table.address, "request_id": upsert["metadata"]["request_id"]})
    assert (removed["records_removed"], removed["records_restored"]) == (half + len(new), half)
    assert table.figures()["n"] == rows - share
