"""Sixteen clients make changes of every kind to one table at once, while it is compacted and repartitioned: a list of
rows says what every response and the table must be."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness import Firn
from tests.model.crowd import FIELDS, NEWEST_FIRST, Client, LastSuccess, Row, newest_of_each_key
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

CLIENTS = 16
# Between two changes of the table as a whole, so that most of the machine is left to the clients.
PAUSE_S = 0.3
BY_CLIENT = {"partitions": [{"field": "client"}]}
FINER = {"partitions": [{"field": "client"}, {"field": "id", "transform": "bucket", "num_buckets": 2}]}
ROW_LEVELS = ("merge_on_read", "copy_on_write", "auto")


class Crowd:
    """The clients of one table, and one that changes the table as a whole."""

    def __init__(self, firn: Firn, tenant: str, row_level: str, *, partitioned: bool) -> None:
        self.partitioned = partitioned
        create = {"partition": BY_CLIENT} if partitioned else {}
        properties = {"row_level": row_level}
        self.table = ServedTable(firn, tenant, "crowd", schema={"fields": FIELDS}, properties=properties, **create)
        last = LastSuccess()
        self.clients = [Client(self.table, number, partitioned, last) for number in range(1, CLIENTS + 1)]
        self.kept = Counter[str]()

    def work(self, turns: int) -> None:
        """Have all clients change the table at once, and the table compacted and repartitioned all the while."""
        stop = threading.Event()
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            keeping = pool.submit(self._keep, stop)
            working = [pool.submit(client.work, turns) for client in self.clients]
            try:
                for one in working:
                    one.result()
            finally:
                stop.set()
            keeping.result()
        self.check()

    def check(self) -> None:
        """The table has the rows of all clients, each as often as they have it."""
        found = Counter(tuple(row[name] for name in FIELDS) for row in self.table.rows())
        assert found == Counter(self.rows())
        assert self.table.ok("DESCRIBE_TABLE")["description"]["row_count"] == len(self.rows())

    def rows(self) -> list[Row]:
        return [row for client in self.clients for row in client.rows]

    def go_back(self, state: list[list[Row]], request: dict[str, Any]) -> None:
        """Return to an earlier state of the table, and so of each client's rows."""
        self.table.firn.ok(request)
        for client, rows in zip(self.clients, state, strict=True):
            client.rows, client.undoable = rows, []
        self.check()

    def _keep(self, stop: threading.Event) -> None:
        finer = False
        while not stop.wait(PAUSE_S):
            answer = self._try("COMPACT", force=True)
            self.kept["compacted"] += answer.get("compacted", False)
            if self.partitioned and not stop.is_set():
                finer = not finer
                answer = self._try("REPARTITION", partition=FINER if finer else BY_CLIENT)
                self.kept["repartitioned"] += answer.get("repartitioned", False)

    def _try(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The response to a request that may lose against others, if that is what it says."""
        answer: dict[str, Any] = self.table.firn.post(self.table.request(operation, **fields))
        assert answer["success"] or answer["error"]["code"] == "COMMIT_CONFLICT", answer
        return answer


def run(crowd: Crowd, turns: int, rounds: int) -> None:
    table = crowd.table
    for number in range(rounds):
        crowd.work(turns)
        state, snapshot = [client.rows for client in crowd.clients], table.ok("DESCRIBE_TABLE")["description"]
        duplicates = len(crowd.rows()) - len(newest_of_each_key(crowd.rows()))
        removed = table.ok("DEDUPLICATE", key_cols=["id"], order_by=NEWEST_FIRST, create_backup=True)
        assert removed["records_removed"] == duplicates
        for client in crowd.clients:
            client.rows, client.undoable = newest_of_each_key(client.rows), []
        crowd.check()
        crowd.work(turns // 2)
        if duplicates and number % 2 == 0:
            crowd.go_back(state, table.request("RESTORE_BACKUP", name=removed["backup"]))
        else:
            crowd.go_back(state, table.request("ROLLBACK", as_of=snapshot["current_snapshot_id"]))
    crowd.work(turns // 2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("row_level", "partitioned"),
    thorough_after(1, [("merge_on_read", True), ("copy_on_write", False)]),
    ids=["by place", "by file"],
)
def test_clients_that_change_one_table_at_once_are_told_what_each_of_them_did(
    firn: Firn, tenant: str, row_level: str, partitioned: bool
) -> None:
    crowd = Crowd(firn, tenant, row_level, partitioned=partitioned)
    run(crowd, turns=2, rounds=1)
    done = sum((client.done for client in crowd.clients), Counter[str]())
    assert set(done) == set(crowd.clients[0].changes)
    assert crowd.kept["compacted"]


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
@pytest.mark.parametrize("row_level", ROW_LEVELS)
def test_clients_that_change_one_table_for_long_are_told_what_each_of_them_did(
    firn: Firn, tenant: str, row_level: str, partitioned: bool
) -> None:
    crowd = Crowd(firn, tenant, row_level, partitioned=partitioned)
    run(crowd, turns=20, rounds=2)
    assert crowd.kept["compacted"]
    assert crowd.kept["repartitioned"] or not partitioned
