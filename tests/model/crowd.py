"""Clients that change one table at once. Each owns some keys, so that it knows what every response to it must say."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from service.model import wire
from tests.harness import Firn
from tests.support.tables import ServedTable

FIELDS = {
    "client": {"type": "integer"},
    "id": {"type": "long", "required": True},
    "kind": {"type": "string"},
    "n": {"type": "long"},
}
KEYS = 6
# For so long none of the clients may have a success. On a slow machine one alone may wait for longer: bulk upserts are
# refused while others are made, and these wait for the edits of all clients.
PATIENCE_S = 120
_RESPONSE_S = 600
NEWEST_FIRST = [{"field": "n", "order": "desc"}]
Row = tuple[int, int, str, int]
"""The values of one row, in the order of FIELDS."""


def record(row: Row) -> dict[str, Any]:
    return dict(zip(FIELDS, row, strict=True))


def newest_of_each_key(rows: Sequence[Row]) -> list[Row]:
    """What DEDUPLICATE leaves of rows. Rows with one key and one n are equal in all else, too."""
    newest: dict[int, Row] = {}
    for row in rows:
        if row[1] not in newest or row[3] > newest[row[1]][3]:
            newest[row[1]] = row
    return list(newest.values())


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in answer.items() if name.startswith("records_") and n}


@dataclass
class Undoable:
    """An acknowledged change, and the client's rows before it."""

    request_id: str
    before: list[Row]
    removed: int
    restored: int


@dataclass
class LastSuccess:
    """When any client of a table had a success last."""

    at: float = field(default_factory=time.monotonic)


@dataclass
class Client:
    """Makes one change after another to its own rows, and checks each response against a plain list."""

    table: ServedTable
    number: int
    partitioned: bool
    last_success: LastSuccess
    """Of all clients of the table."""
    rows: list[Row] = field(default_factory=list)
    undoable: list[Undoable] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    _values: int = 0
    _requests: int = 0

    def __post_init__(self) -> None:
        self.luck = random.Random(self.number)
        self.http = httpx.Client(base_url=self.table.firn.base_url, timeout=_RESPONSE_S)
        self.changes: dict[str, Callable[[], None]] = {
            "write": self.write,
            "upsert": self.upsert,
            "update": self.update,
            "update by a scan": self.update_by_scan,
            "delete": self.delete,
            "delete by a scan": self.delete_by_scan,
            "bulk upsert": self.bulk_upsert,
            "undo": self.undo,
        }
        if self.partitioned:
            self.changes |= {"overwrite": self.overwrite, "deduplicate": self.deduplicate}

    def work(self, turns: int) -> None:
        """Make so many changes, each kind as often as another, then read the own rows."""
        kinds = list(self.changes)
        every = (kinds * (turns // len(kinds) + 1))[:turns] if turns >= len(kinds) else self.luck.sample(kinds, turns)
        self.luck.shuffle(every)
        for kind in every:
            self.changes[kind]()
            self.done[kind] += 1
        self.read()

    def read(self) -> None:
        found = self.table.rows(filter={"client": self.number})
        assert Counter(tuple(row[name] for name in FIELDS) for row in found) == Counter(self.rows), self.number

    # Changes.

    def write(self) -> None:
        new = [self._row(self._key()) for _ in range(self.luck.randint(1, 3))]
        answer = self._ask("WRITE", records=[record(row) for row in new])
        self._changed(answer, {"records_written": len(new)}, [*self.rows, *new], added=len(new))

    def upsert(self) -> None:
        some = self._rows_by_key()
        answer = self._ask("UPSERT", records=[record(row) for row in some.values()], key_cols=["id"])
        self._upserted(answer, some)

    def bulk_upsert(self) -> None:
        some = self._rows_by_key()
        body = "\n".join(json.dumps(record(row)) for row in some.values()).encode()
        path = f"/tables/{self.table.tenant}/default/{self.table.name.table}/records?mode=upsert&key_cols=id"
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": self._request_key()}
        self._upserted(self._until_done(lambda: self.http.post(path, content=body, headers=headers)), some)

    def update(self) -> None:
        key, new = self._key(), self._row(0)
        answer = self._ask("UPDATE", filter={"id": key}, updates={"kind": new[2], "n": new[3]})
        after = [(*row[:2], *new[2:]) if row[1] == key else row for row in self.rows]
        self._updated(answer, after, sum(row[1] == key for row in self.rows))

    def update_by_scan(self) -> None:
        least = self._some_value()
        filter = {"client": self.number, "n": {"gte": least}}
        answer = self._ask("UPDATE", filter=filter, updates={"n": {"expression": "n + 1000000"}})
        after = [(*row[:3], row[3] + 1_000_000) if row[3] >= least else row for row in self.rows]
        self._updated(answer, after, sum(row[3] >= least for row in self.rows))

    def delete(self) -> None:
        keys = {self._key(), self._key()}
        answer = self._ask("DELETE", filter={"id": {"in": sorted(keys)}})
        self._deleted(answer, [row for row in self.rows if row[1] not in keys], "records_deleted")

    def delete_by_scan(self) -> None:
        least = self._some_value()
        answer = self._ask("DELETE", filter={"client": self.number, "n": {"lt": least}})
        self._deleted(answer, [row for row in self.rows if row[3] >= least], "records_deleted")

    def overwrite(self) -> None:
        new = [self._row(self._key()) for _ in range(3)]
        records = [record(row) for row in new]
        answer = self._ask("WRITE", mode="overwrite", partition_filter={"client": self.number}, records=records)
        told = {"records_written": 3, "records_inserted": 3, "records_deleted": len(self.rows)}
        self._changed(answer, told, new, removed=len(self.rows), added=3)

    def deduplicate(self) -> None:
        how = {"key_cols": ["id"], "order_by": NEWEST_FIRST}
        answer = self._ask("DEDUPLICATE", partition_filter={"client": self.number}, **how)
        self._deleted(answer, newest_of_each_key(self.rows), "records_removed")

    def undo(self) -> None:
        """Undo the last change that is not undone; without one, a new row is written."""
        if not self.undoable:
            return self.write()
        last = self.undoable.pop()
        answer = self._ask("UNDO", request_id=last.request_id)
        told = {"records_removed": last.removed, "records_restored": last.restored}
        self._told(answer, told)
        self.rows = last.before

    # What responses must say.

    def _upserted(self, answer: dict[str, Any], some: dict[int, Row]) -> None:
        there = {row[1] for row in self.rows}
        updated = sum(row[1] in some for row in self.rows)
        new = [row for key, row in some.items() if key not in there]
        after = [some.get(row[1], row) for row in self.rows] + new
        told = {"records_inserted": len(new), "records_updated": updated}
        self._changed(answer, told, after, removed=updated, added=len(new) + updated)

    def _updated(self, answer: dict[str, Any], after: list[Row], count: int) -> None:
        self._changed(answer, {"records_updated": count}, after, removed=count, added=count)

    def _deleted(self, answer: dict[str, Any], after: list[Row], what: str) -> None:
        gone = len(self.rows) - len(after)
        self._changed(answer, {what: gone}, after, removed=gone)

    def _changed(
        self, answer: dict[str, Any], told: dict[str, int], after: list[Row], *, removed: int = 0, added: int = 0
    ) -> None:
        self._told(answer, told)
        if removed or added:
            self.undoable.append(Undoable(answer["metadata"]["request_id"], self.rows, added, removed))
        self.rows = after

    def _told(self, answer: dict[str, Any], told: dict[str, int]) -> None:
        assert counts(answer) == {name: n for name, n in told.items() if n}, (self.number, answer, self.rows)

    # Requests.

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        request = self.table.request(operation, **fields, idempotency_key=self._request_key())
        return self._until_done(lambda: self.http.post("/database", content=wire.render(request)))

    def _until_done(self, send: Callable[[], httpx.Response]) -> dict[str, Any]:
        """Send a request until it succeeds; every few requests once more, which must get the same response."""
        started = time.monotonic()
        while True:
            response = send()
            body = Firn.parsed(response)
            if body["success"]:
                break
            assert body["error"]["retryable"], (self.number, body)
            waited_s = time.monotonic() - max(started, self.last_success.at)
            assert waited_s < PATIENCE_S, f"no client had a success for {PATIENCE_S} s; {self.number} has {body}"
            time.sleep(0.1)
        self.last_success.at = time.monotonic()
        if self._requests % 5 == 0:
            assert send().content == response.content
        return body

    def _request_key(self) -> str:
        self._requests += 1
        return f"client-{self.number}-{self._requests}"

    def _key(self) -> int:
        return self.number * 1000 + self.luck.randrange(KEYS)

    def _row(self, key: int) -> Row:
        """A row with values that no other has."""
        self._values += 1
        return self.number, key, self.luck.choice("abc"), self.number * 10**9 + self._values

    def _rows_by_key(self) -> dict[int, Row]:
        return {row[1]: row for row in (self._row(self._key()) for _ in range(3))}

    def _some_value(self) -> int:
        return self.luck.choice(self.rows)[3] if self.rows else 0
