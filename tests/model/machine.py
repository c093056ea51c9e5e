"""One table of Firn's beside one list of rows: what all rules of the state machine need."""

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from tests.harness import Firn
from tests.model.computed import Row
from tests.model.edits import fitted, known
from tests.model.expected_edits import Change, ExpectedEdit, Pair, complete, expected_edit
from tests.model.requests import COLUMNS, typed
from tests.strategies import json_text

_tables = itertools.count(1)


@dataclass(frozen=True)
class Mutation:
    """A change that was acknowledged, and which rows it took away, changed and added."""

    request_id: str
    operation: str
    pairs: list[Pair]
    columns: tuple[str, ...]
    """Those that the table had then."""
    keys: tuple[str, ...] = ()
    """By which an UPSERT met rows."""


@dataclass(frozen=True)
class Plan:
    """What a dry run promised: for as long as the rows it was about are the same."""

    change: Change
    token: str
    held: list[Row]
    snapshot: str | None
    figures: dict[str, int]
    """What it said of files, which goes for that snapshot."""


class Machine(RuleBasedStateMachine):
    """The table and what it should be. Rules are in the classes that build on this one."""

    def __init__(self, firn: Firn, tenant: str, row_level: str) -> None:
        super().__init__()
        self.firn = firn
        self.row_level = row_level
        self.address = {"tenant_id": tenant, "table": f"model-{next(_tables)}"}
        self.rows: list[Row] = []
        self.columns: tuple[str, ...] = COLUMNS
        self.partitioned_by: list[str] = []
        self.snapshot: str | None = None
        self.past: dict[str, list[Row]] = {}
        self.backups: dict[str, list[Row]] = {}
        self.plans: list[Plan] = []
        # In the order they were acknowledged; UNDOs among them, and which one each took back.
        self.mutations: list[Mutation] = []
        self.undos: dict[int, int] = {}
        # Of changes before this one, what an UNDO needs may have been let go.
        self.expired_before = 0
        self.unchecked = False

    @property
    def derived(self) -> tuple[str, ...]:
        return self.columns[len(COLUMNS) :]

    def fitted(self, change: Change) -> Change:
        return fitted(change, self.columns, self.partitioned_by)

    def known(self, sent: Any) -> Any:
        return known(sent, self.columns)

    # Requests.

    def request_text(self, operation: str, **fields: Any) -> str:
        # The client's own text: rendering would make strings of its decimals.
        return json_text({"operation": operation, **self.address, **fields})

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        answer = self.firn.post(self.request_text(operation, **fields))
        assert answer["success"], answer
        return answer

    def refused(self, code: str, operation: str, **fields: Any) -> None:
        before = self.describe()
        self.firn.fail(self.request_text(operation, **fields), code)
        assert self.describe() == before, "a refused request changed the table"

    def changes_nothing(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The answer of a request that only looks."""
        before = self.describe()
        answer = self.ok(operation, **fields)
        assert self.describe() == before, f"a {operation} that was to look only changed the table"
        return answer

    def describe(self) -> dict[str, Any]:
        description: dict[str, Any] = self.ok("DESCRIBE_TABLE")["description"]
        assert description["row_count"] == len(self.rows)
        return description

    # Changing.

    def append(self, sent: list[dict[str, Any]]) -> None:
        sent = self.known(sent)
        answer = self.ok("WRITE", records=sent)
        assert answer["records_written"] == len(sent)
        new = [complete(record, self.derived) for record in sent]
        self.done(answer, "WRITE", self.rows + new, [(None, row) for row in new])

    def change(self, request: Change, **how: Any) -> None:
        """Ask for a change of rows in place, and see that it is what it should be, or refused."""
        change = self.fitted(request)
        expected = expected_edit(change, self.rows, self.derived)
        if expected.refusal:
            self.refused(expected.refusal, change.operation, **change.fields, **how)
            return
        self.made(self.ok(change.operation, **change.fields, **how), change, expected, how.get("create_backup", False))

    def made(self, answer: dict[str, Any], change: Change, expected: ExpectedEdit, backup: bool = False) -> None:
        """A change was answered, which should have had this result."""
        assert counts(answer) == expected.counts
        self.kept(answer, wanted=backup and bool(expected.pairs))
        keys = tuple(change.fields.get("key_cols") or ["id"]) if change.operation == "UPSERT" else ()
        self.done(answer, change.operation, expected.rows, expected.pairs, keys)

    def kept(self, answer: dict[str, Any], *, wanted: bool) -> None:
        """The backup that an answer names, if there should be one: of a state that there was."""
        assert ("backup" in answer) == (wanted and self.snapshot is not None)
        if "backup" in answer:
            assert answer["backup"] not in self.backups
            self.backups[answer["backup"]] = self.rows

    def done(
        self, answer: dict[str, Any], operation: str, rows: list[Row], pairs: list[Pair], keys: tuple[str, ...] = ()
    ) -> None:
        """The rows as they should be after a change that was answered, and what it did to them."""
        request_id = answer["metadata"]["request_id"]
        self.mutations.append(Mutation(request_id, operation, pairs, self.columns, keys))
        self.now(answer, rows)

    def now(self, answer: dict[str, Any], rows: list[Row]) -> None:
        """The rows as they should be after something that was answered."""
        self.rows = rows
        self.unchecked = True
        snapshot_id = answer["metadata"].get("snapshot_id")
        assert rows == [] or snapshot_id is not None
        if snapshot_id is not None:
            self.snapshot = snapshot_id
            self.past[snapshot_id] = rows
        self.look()

    # Looking.

    def look(self) -> None:
        assert same(self.rows_of(self.ok("QUERY", limit=1000)), self.rows)
        self.unchecked = False

    def rows_of(self, answer: dict[str, Any]) -> list[Row]:
        for row in answer["data"]:
            assert tuple(row) == self.columns
        return [row_of(row) for row in answer["data"]]

    def teardown(self) -> None:
        if self.unchecked:
            self.look()


def row_of(answered: dict[str, Any]) -> Row:
    return {column: typed(column, value) for column, value in answered.items()}


def counts(answer: dict[str, Any]) -> dict[str, int]:
    """What an answer says of the rows, but for how many it wrote: as many as it inserted."""
    if "records_written" in answer:
        assert answer["records_written"] == answer["records_inserted"]
    return {name: n for name, n in answer.items() if name.startswith("records_") and name != "records_written"}


def same(one: list[Row], other: list[Row]) -> bool:
    """The same rows as often, in whatever order."""
    return bag(one) == bag(other)


def bag(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.items()) for row in rows)
