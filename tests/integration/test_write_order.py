"""Without `order_by`, DEDUPLICATE keeps the row of each key that was written first or last."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.tables import TableById

FIELDS = {"id": {"type": "long"}, "n": {"type": "integer"}, "text": {"type": "string"}}
Make = Callable[..., TableById]


@pytest.fixture
def make(firn: Firn, tenant: str) -> Make:
    def made(**fields: Any) -> TableById:
        table = TableById(firn, tenant)
        table.ok("CREATE_TABLE", schema={"fields": FIELDS}, **fields)
        return table

    return made


def kept(table: TableById, keep: str) -> dict[int, int]:
    """The row that a DEDUPLICATE would keep of each key."""
    rows = [(row["id"], row["n"]) for row in table.rows()]
    plan = table.ok("DEDUPLICATE", key_cols=["id"], keep=keep, dry_run=True)["plan"]
    assert plan["records_removed"] == len(plan["sample"]), "the sample must be complete"
    gone = {(one["before"]["id"], one["before"]["n"]) for one in plan["sample"]}
    return dict(row for row in rows if row not in gone)


def padded(n: int) -> str:
    """Texts of different lengths, so that neither the files' sizes nor their rows' hashes grow with the time."""
    return "x" * (n * 7919 % 400)


@pytest.mark.thorough
def test_the_first_and_the_last_row_are_those_that_were_written_first_and_last(make: Make) -> None:
    table = make()
    for n in range(5):
        table.ok("WRITE", records=[{"id": 1, "n": n, "text": padded(n)}, {"id": 2, "n": 10 + n, "text": padded(n)}])
    assert (kept(table, "first"), kept(table, "last")) == ({1: 0, 2: 10}, {1: 4, 2: 14})
    table.ok("DEDUPLICATE", key_cols=["id"], keep="last")
    assert {row["id"]: row["n"] for row in table.rows()} == {1: 4, 2: 14}


def test_rows_of_one_write_are_in_the_order_of_the_request(make: Make) -> None:
    table = make()
    table.ok("WRITE", records=[{"id": n % 2, "n": n, "text": padded(n)} for n in range(12)])
    assert (kept(table, "first"), kept(table, "last")) == ({0: 0, 1: 1}, {0: 10, 1: 11})


def test_writes_that_share_a_commit_keep_their_order_within_each_request(make: Make) -> None:
    table = make()

    def write(key: int) -> int:
        records = [{"id": key, "n": n, "text": padded(n + key)} for n in range(3)]
        return int(table.ok("WRITE", records=records)["metadata"]["batch"]["requests"])

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(write, range(8))) > 1, "some must share a commit"
    assert kept(table, "first") == dict.fromkeys(range(8), 0)
    table.ok("COMPACT", force=True)
    assert kept(table, "first") == dict.fromkeys(range(8), 0)


@pytest.mark.thorough
@pytest.mark.parametrize("files", [3, 20, 110])
def test_a_compaction_keeps_the_order(make: Make, files: int) -> None:
    table = make()
    keys = max(2, files - 15)  # a dry run shows up to 20 rows
    for n in range(files):
        table.ok("WRITE", records=[{"id": n % keys, "n": n, "text": padded(n)}])
    first = {key: key for key in range(keys)}
    last = {n % keys: n for n in range(files)}
    for _ in range(1 if files <= 100 else 2):  # one compaction merges 100 files, and leaves the newest to the next
        assert table.ok("COMPACT", force=True)["stats"]["files_added"] == 1
        assert (kept(table, "first"), kept(table, "last")) == (first, last)


@pytest.mark.thorough
def test_files_that_a_compaction_merged_stay_older_than_what_was_written_since(make: Make) -> None:
    """The merged files have the newest sequence number of what they replaced, not that of the compaction."""
    table = make(partition={"partitions": [{"field": "text"}]})
    for n, part in enumerate(("old", "old", "new")):
        table.ok("WRITE", records=[{"id": 1, "n": n, "text": part}])
    merged = table.ok("COMPACT", partition_filter={"text": "old"}, force=True)
    assert merged["stats"]["files_compacted"] == 2
    assert (kept(table, "first"), kept(table, "last")) == ({1: 0}, {1: 2})
