"""A policy is set while others write, and partitions are what Spark made of them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.harness import Firn

SCHEMA = {"fields": {"id": {"type": "long"}, "at": {"type": "timestamp"}, "country": {"type": "string"}}}
BY = {"partitions": [{"field": "at", "transform": "day", "name": "day"}, {"field": "country", "transform": "identity"}]}


def make(firn: Firn, tenant: str, **fields: Any) -> dict[str, Any]:
    address = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA, **fields})
    return address


def test_policies_set_by_many_while_a_writer_writes_fail_nobody_and_lose_nothing(firn: Firn, tenant: str) -> None:
    table = make(firn, tenant)
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stop.is_set():
            firn.ok({"operation": "WRITE", **table, "records": [{"id": len(written)}]})
            written.append(len(written))

    def client(number: int) -> list[int]:
        wanted = [10 * number + i for i in range(2, 7)]
        shown = []
        for min_files in wanted:
            key = f"{number}-{min_files}"
            request = {"operation": "SET_COMPACTION", **table, "min_files_to_compact": min_files}
            body = firn.ok({**request, "idempotency_key": key})
            shown.append(body["compaction"]["min_files_to_compact"])
            assert firn.ok({**request, "idempotency_key": key}) == body
        assert shown == wanted
        return wanted

    with ThreadPoolExecutor(5) as pool:
        writing = pool.submit(write)
        try:
            wanted = [value for each in pool.map(client, range(4)) for value in each]
        finally:
            stop.set()
        writing.result(60)
    described = firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"]
    assert described["compaction"]["min_files_to_compact"] in wanted
    last = firn.ok({"operation": "SET_COMPACTION", **table, "min_files_to_compact": 99, "mode": "off"})["compaction"]
    described = firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"]
    assert described["compaction"] == last
    assert (last["min_files_to_compact"], last["mode"]) == (99, "off")
    assert sorted(row["id"] for row in firn.rows(tenant, "t")) == written
    assert described["row_count"] == len(written)


def test_partitions_that_spark_wrote_are_named_as_queries_name_their_values(firn: Firn, tenant: str) -> None:
    table = make(firn, tenant, partition=BY)
    for day, country in (("2024-05-01", "CH"), ("2024-05-01", "CH"), ("2024-05-02", None)):
        firn.ok({"operation": "WRITE", **table, "records": [{"id": 1, "at": f"{day}T23:59:59", "country": country}]})
    answer = firn.ok({"operation": "LIST_PARTITIONS", **table})
    shown = [(p["partition"], p["files"], p["records"], p["small_files"]) for p in answer["partitions"]]
    assert shown == [
        ({"day": "2024-05-01", "country": "CH"}, 2, 2, 2),
        ({"day": "2024-05-02", "country": None}, 1, 1, 1),
    ]
    assert all(p["average_file_bytes"] == p["bytes"] // p["files"] for p in answer["partitions"])
    described = firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"]
    assert sum(p["bytes"] for p in answer["partitions"]) == described["total_bytes"]
    only = {"at": {"gte": "2024-05-02T00:00:00"}}
    filtered = firn.ok({"operation": "LIST_PARTITIONS", **table, "partition_filter": only})
    assert (filtered["partitions"], filtered["total"]) == (answer["partitions"][1:], 1)
    first = firn.ok({"operation": "LIST_PARTITIONS", **table, "limit": 1})
    assert (first["partitions"], first["total"]) == (answer["partitions"][:1], 2)
    # The next page is of the same snapshot, although a write changed the order.
    for _ in range(3):
        firn.ok({"operation": "WRITE", **table, "records": [{"at": "2024-05-02T10:00:00"}]})
    second = firn.ok({"operation": "LIST_PARTITIONS", **table, "limit": 1, "cursor": first["next_cursor"]})
    assert (second["partitions"], "next_cursor" in second) == (answer["partitions"][1:], False)
