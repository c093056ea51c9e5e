"""COMPACT merges what is worth merging and nothing else, changes no row, and reports what it counted."""

import threading
from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog
from service.model.names import TableName
from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "country": {"type": "string"},
        "day": {"type": "date"},
        "text": {"type": "string"},
    }
}
BY_COUNTRY = {"partitions": [{"field": "country", "transform": "identity"}]}
BY_MONTH = {"partitions": [{"field": "day", "transform": "month"}]}


class Shop(ServedTable):
    """One table, and what the tests do to it again and again."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, **{"schema": SCHEMA, **create})

    def fill(self, files: int, **values: Any) -> None:
        for i in range(files):
            self.write({"id": i, **values})

    def compact(self, **fields: Any) -> dict[str, Any]:
        return self.ok("COMPACT", **fields)

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        return super().rows(sort=["id", "country", "day", "text"], **query)


def adds_up(stats: dict[str, Any]) -> bool:
    return bool(
        stats["files_before"] - stats["files_removed"] + stats["files_added"] == stats["files_after"]
        and stats["bytes_before"] - stats["bytes_after"] == stats["bytes_saved"]
    )


def test_small_files_become_one_and_every_figure_is_counted(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.fill(4, text="x")
    rows, before = shop.rows(), shop.description
    answer = shop.compact()
    after, stats = shop.description, answer["stats"]
    assert (answer["compacted"], "reason" in answer) == (True, False)
    assert shop.rows() == rows
    assert adds_up(stats)
    assert (stats["files_before"], stats["files_after"]) == (before["file_count"], after["file_count"]) == (4, 1)
    assert (stats["files_compacted"], stats["files_removed"], stats["files_added"]) == (4, 4, 1)
    assert (stats["bytes_before"], stats["bytes_after"]) == (before["total_bytes"], after["total_bytes"])
    assert stats["small_files_remaining"] == after["small_files_count"] == 1
    assert answer["metadata"]["snapshot_id"] == after["current_snapshot_id"] != before["current_snapshot_id"]
    assert stats["compaction_time_ms"] <= answer["metadata"]["execution_time_ms"]


@pytest.mark.parametrize(
    ("files", "properties", "asked", "reason"),
    [
        (0, {}, {"force": True}, "there are no small files"),
        (1, {}, {"force": True}, "no partition has the 2 that make merging worth it"),
        (2, {}, {}, "no partition has the 3 that make merging worth it; force: true merges from 2"),
        (3, {"enabled": False}, {}, "compaction is disabled for this table; force: true compacts it all the same"),
    ],
)
def test_nothing_to_do_says_why_and_changes_nothing(
    firn: Firn, tenant: str, files: int, properties: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    shop = Shop(firn, tenant, properties=properties)
    shop.fill(files)
    before = shop.description
    answer = shop.compact(**asked)
    assert answer["compacted"] is False
    assert answer["reason"].endswith(reason)
    stats = answer["stats"]
    assert (stats["files_before"], stats["files_after"], stats["files_removed"]) == (files, files, 0)
    assert shop.description == before


@pytest.mark.parametrize(("files", "properties"), [(2, {}), (3, {"enabled": False})])
def test_force_merges_from_two_files_on_and_where_it_is_disabled(
    firn: Firn, tenant: str, files: int, properties: dict[str, Any]
) -> None:
    shop = Shop(firn, tenant, properties=properties)
    shop.fill(files)
    answer = shop.compact(force=True)
    assert answer["compacted"] is True
    assert (answer["stats"]["files_compacted"], answer["stats"]["files_after"]) == (files, 1)


@pytest.mark.thorough
def test_at_most_max_files_are_merged(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, properties={"max_files_per_compaction": 4})
    shop.fill(8)
    rows, stats = shop.rows(), shop.compact(max_files=3)["stats"]
    assert (stats["files_compacted"], stats["files_after"]) == (3, 6)
    stats = shop.compact()["stats"]
    assert (stats["files_compacted"], stats["files_after"], adds_up(stats)) == (4, 3, True)
    assert shop.rows() == rows


def test_max_files_below_what_is_worth_merging_still_merges(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, properties={"min_files_to_compact": 4})
    shop.fill(5)
    answer = shop.compact(max_files=2)
    assert (answer["compacted"], answer["stats"]["files_compacted"]) == (True, 2), answer


@pytest.mark.thorough
def test_files_are_merged_up_to_the_size_asked_for(firn: Firn, tenant: str) -> None:
    """Six files of about 0.4 MB make files of about 1 MB, and merging again finds nothing worth it."""
    shop = Shop(firn, tenant, properties={"compression": "uncompressed"})
    for i in range(6):
        shop.write(*({"id": i * 100 + n, "text": f"{n}{'abcdefghij' * 400}{i}{n * n}"} for n in range(100)))
    size = max(f.bytes for f in list_files(firn.app.parts[Catalog].load(TableName(tenant, "default", "t"))).data)
    assert 300_000 < size < 500_000, size
    rows, stats = shop.rows(), shop.compact(target_file_size_mb=1)["stats"]
    assert stats["files_compacted"] == 6
    assert 2 <= stats["files_after"] <= 3, stats
    assert adds_up(stats)
    assert shop.rows() == rows
    again = shop.compact(target_file_size_mb=1)
    assert again["compacted"] is False, again


@pytest.mark.parametrize(
    ("by", "asked", "touched"),
    thorough_after(
        1,
        [
            (BY_COUNTRY, {"country": "de"}, ("de",)),
            (BY_COUNTRY, [{"field": "country", "operator": "in", "value": ["de", "at"]}], ("de", "at")),
            (BY_COUNTRY, {"country": {"is_null": True}}, (None,)),
            (BY_COUNTRY, {"country": {"ne": "de"}}, ("at",)),
            (BY_MONTH, {"day": {"lt": "2024-02-01"}}, ("de",)),
            (BY_MONTH, [{"field": "day", "operator": "between", "value": ["2024-02-01", "2024-02-29"]}], ("at",)),
        ],
    ),
)
def test_a_partition_filter_touches_only_files_of_those_partitions(
    firn: Firn, tenant: str, by: dict[str, Any], asked: Any, touched: tuple[str | None, ...]
) -> None:
    shop = Shop(firn, tenant, partition=by)
    places = {"de": ("de", "2024-01-31"), "at": ("at", "2024-02-01"), None: (None, None)}
    before: dict[str, str | None] = {}
    for i in range(3):
        shop.write(*({"id": i, "country": c, "day": d} for c, d in places.values()))
        for path, group in shop.current_files().items():
            before.setdefault(path, path_owner(group, by))
    rows = shop.rows()
    answer = shop.compact(partition_filter=asked)
    after = shop.current_files()
    assert (answer["compacted"], shop.rows() == rows) == (True, True), answer
    assert {path for path in before if path not in after} == {p for p, owner in before.items() if owner in touched}
    assert len(after) == 9 - 2 * len(touched)
    assert answer["stats"]["files_compacted"] == 3 * len(touched)
    assert adds_up(answer["stats"])


def path_owner(group: tuple[Any, ...], by: dict[str, Any]) -> str | None:
    """Which country's rows a file holds, by its partition: each country has a month of its own."""
    [value] = group
    if by is BY_COUNTRY or value is None:
        return None if value is None else str(value)
    return {(2024 - 1970) * 12: "de", (2024 - 1970) * 12 + 1: "at"}[value]


@pytest.mark.parametrize(
    ("by", "asked"),
    [
        (BY_COUNTRY, {"id": 1}),
        (BY_COUNTRY, [{"field": "country", "operator": "like", "value": "d%"}]),
        (None, {"country": "de"}),
    ],
)
def test_a_partition_filter_that_cannot_be_used_is_refused(
    firn: Firn, tenant: str, by: dict[str, Any] | None, asked: Any
) -> None:
    shop = Shop(firn, tenant, partition=by)
    shop.fill(3)
    request = {"operation": "COMPACT", **shop.address, "partition_filter": asked}
    assert firn.fail(request, "INVALID_FILTER", 400)["field"].startswith("partition_filter")
    assert shop.description["file_count"] == 3


def test_only_partitions_with_enough_small_files_are_merged(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_COUNTRY)
    for country, files in (("de", 4), ("at", 2), (None, 3)):
        shop.fill(files, country=country)
    stats = shop.compact()["stats"]
    assert (stats["files_compacted"], stats["files_after"], stats["small_files_remaining"]) == (7, 4, 4)
    assert adds_up(stats)


def test_snapshots_past_their_retention_expire_and_are_counted(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.fill(4)
    first = shop.firn.rows(tenant, "t")
    assert shop.compact()["stats"]["snapshots_expired"] == 0
    assert shop.description["snapshot_count"] == 5
    answer = shop.compact(snapshot_retention_hours=0)
    assert answer["stats"]["snapshots_expired"] == 4
    after = shop.description
    assert (after["snapshot_count"], after["row_count"]) == (1, 4)
    assert sorted(r["id"] for r in first) == sorted(r["id"] for r in shop.rows())
    again = shop.compact(snapshot_retention_hours=0)["stats"]
    assert (again["snapshots_expired"], shop.description["snapshot_count"]) == (0, 1)


def test_without_expire_snapshots_none_expires(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.fill(3)
    answer = shop.compact(expire_snapshots=False, snapshot_retention_hours=0)
    assert (answer["stats"]["snapshots_expired"], shop.description["snapshot_count"]) == (0, 4)


def test_merging_keeps_deletes_and_updates(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_COUNTRY)
    shop.fill(3, country="de")
    shop.fill(3, country="at")
    firn.ok({"operation": "DELETE", **shop.address, "filter": {"id": 1}})
    firn.ok({"operation": "UPDATE", **shop.address, "updates": {"text": "new"}, "filter": {"id": 2}})
    rows = shop.rows()
    shop.compact(force=True)
    assert shop.rows() == rows
    assert [(r["id"], r["text"]) for r in rows] == [(0, None), (0, None), (2, "new"), (2, "new")]


@pytest.mark.thorough
def test_writers_are_never_refused_by_compactions_beside_them(firn: Firn, tenant: str) -> None:
    """Four clients write while the table is compacted again and again: every row is there, once."""
    shop = Shop(firn, tenant)
    shop.fill(3, country="before")
    answers: list[dict[str, Any]] = []

    def client(number: int) -> None:
        for i in range(8):
            record = {"id": 1000 * number + i, "country": "beside"}
            answers.append(firn.post({"operation": "WRITE", **shop.address, "records": [record]}))

    clients = [threading.Thread(target=client, args=(n,)) for n in range(1, 5)]
    for thread in clients:
        thread.start()
    compactions = []
    while any(thread.is_alive() for thread in clients):
        compactions.append(firn.post({"operation": "COMPACT", **shop.address, "force": True}))
    assert [a for a in answers if not a["success"]] == []
    assert [c for c in compactions if not c["success"]] == []
    assert any(c["compacted"] for c in compactions)
    assert all(adds_up(c["stats"]) for c in compactions)
    expected = [0, 1, 2, *(1000 * n + i for n in range(1, 5) for i in range(8))]
    assert [row["id"] for row in shop.rows()] == expected
    shop.compact(force=True)
    assert ([row["id"] for row in shop.rows()], shop.description["file_count"]) == (expected, 1)


@pytest.mark.thorough
def test_readers_are_never_refused_by_compactions_beside_them(firn: Firn, tenant: str) -> None:
    """A query sees the rows as they were before or after a compaction: all of them, each once."""
    shop = Shop(firn, tenant)
    shop.fill(3)
    done = threading.Event()
    answers: list[dict[str, Any]] = []

    def read() -> None:
        while not done.is_set():
            answers.append(firn.post({"operation": "QUERY", **shop.address, "projection": ["id"], "sort": ["id"]}))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for i in range(3, 7):
        shop.write({"id": i})
        assert shop.compact(force=True, snapshot_retention_hours=168)["compacted"]
    done.set()
    for thread in readers:
        thread.join()
    assert [a for a in answers if not a["success"]] == []
    for answer in answers:
        found = [row["id"] for row in answer["data"]]
        assert found in ([0, 0, 0], [0, 1, 2], *([0, 1, 2, *range(3, n)] for n in range(4, 8))), found


@pytest.mark.thorough
def test_a_query_whose_snapshot_expires_is_never_a_defect(firn: Firn, tenant: str) -> None:
    """With a retention of 0 a slow query may lose its files; then it is told to try again."""
    shop = Shop(firn, tenant)
    shop.fill(2)
    done = threading.Event()
    answers: list[dict[str, Any]] = []

    def read() -> None:
        while not done.is_set():
            answers.append(firn.post({"operation": "QUERY", **shop.address}))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for i in range(2, 6):
        shop.write({"id": i})
        shop.compact(force=True, snapshot_retention_hours=0)
    done.set()
    for thread in readers:
        thread.join()
    assert any(answer["success"] for answer in answers)
    refused = [answer["error"] for answer in answers if not answer["success"]]
    assert [error for error in refused if not error["retryable"]] == []
