"""Rules that take changes back.

The model knows rows by what they hold; Firn also knows in which files they lie, and so may tell two apart that hold the
same. Where the model sees a conflict that files may have kept apart, both answers are right; what each must come to is
certain. A restore brings back the very rows, and of equal ones a DEDUPLICATE may have left any: files tell nothing of
those.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.computed import DERIVED, Row
from tests.model.expected_edits import Pair
from tests.model.machine import Machine, Mutation, bag

PRIMARY_KEY = ("id",)


@dataclass(frozen=True)
class Expected:
    """What taking a change back comes to."""

    gone: list[Row]
    back: list[Row]
    rows: list[Row] | None
    """Without a value it must be refused: some of the rows are not there, are back already, or went by chance."""
    conflicts: frozenset[str]
    """The requests that may be named as having touched the same rows."""


class Undoing(Machine):
    @precondition(lambda self: self.mutations)
    @rule(data=st.data(), dry_run=st.booleans())
    def undo(self, data: st.DataObject, dry_run: bool) -> None:
        """The rows are as if the change had not been made, or it is refused for what came since."""
        # The newest are the likeliest to be free of conflicts.
        n = len(self.mutations) - 1 - data.draw(st.integers(0, len(self.mutations) - 1), label="how long ago")
        target = self.mutations[n]
        request: dict[str, Any] = {"request_id": target.request_id, **({"dry_run": True} if dry_run else {})}
        if not target.pairs:
            assert self.code_of(request) in ("INVALID_REQUEST", "REQUEST_NOT_FOUND")
            return
        if n in self.standing_undos().values():
            assert self.code_of(request) == "UNDO_CONFLICT"
            return
        expected = self.expected(n)
        before = self.describe()
        answer = self.firn.post(self.request_text("UNDO", **request))
        if not answer["success"]:
            assert self.describe() == before
            self.refusal_is_right(n, answer["error"], expected)
            return
        assert expected.rows is not None, (answer, expected)
        counted = tuple(answer.get("plan", answer)[f"records_{what}"] for what in ("removed", "restored"))
        assert counted == (len(expected.gone), len(expected.back)), (answer, expected)
        if dry_run:
            assert self.describe() == before
            return
        pairs: list[Pair] = [*((row, None) for row in expected.gone), *((None, row) for row in expected.back)]
        self.undos[len(self.mutations)] = n
        self.done(answer, "UNDO", expected.rows, pairs)

    def code_of(self, request: dict[str, Any]) -> str:
        before = self.describe()
        answer = self.firn.post(self.request_text("UNDO", **request))
        assert not answer["success"], answer
        assert self.describe() == before
        return str(answer["error"]["code"])

    def refusal_is_right(self, n: int, error: dict[str, Any], expected: Expected) -> None:
        if error["code"] == "UNDO_TOO_LATE":
            assert n < self.expired_before, error
            return
        assert error["code"] == "UNDO_CONFLICT", error
        assert expected.conflicts, error
        named = set(error["details"]["request_ids"])
        assert named <= expected.conflicts, (named, expected)
        assert named or n < self.expired_before, error

    def standing_undos(self) -> dict[int, int]:
        """UNDOs that were not undone themselves, and what each took back."""
        found: dict[int, int] = {}
        for by in sorted(self.undos, reverse=True):
            if by not in found.values():
                found[by] = self.undos[by]
        return found

    def expected(self, n: int) -> Expected:
        target, late = self.mutations[n], [name for name in self.derived if not _has(self.mutations[n], name)]

        def now(row: Row) -> Row:
            """The row as it would be in the table by now."""
            known = {column: row.get(column) for column in self.columns}
            return known | {name: DERIVED[name][1](known) for name in late if known[name] is None}

        def delta(mutation: Mutation) -> tuple[Counter[Any], Counter[Any]]:
            before = bag([now(b) for b, _ in mutation.pairs if b is not None])
            after = bag([now(a) for _, a in mutation.pairs if a is not None])
            return after - before, before - after

        came, went = delta(target)
        undos = self.standing_undos()
        idle = {m for by, of in undos.items() if by > n and of > n for m in (by, of)}
        later = [m for m in range(n + 1, len(self.mutations)) if m not in idle]
        keys = {PRIMARY_KEY, *(self.mutations[m].keys for m in [n, *later])} - {()}
        conflicts, is_certain, returned = set(), False, Counter[Any]()
        touchable = Counter(came)
        for m in later:
            brought, took = delta(self.mutations[m])
            if m >= self.expired_before:
                if self.mutations[m].operation == "RESTORE_BACKUP":
                    returned.update(brought)
                    returned.subtract(took)
                is_certain = is_certain or bool(self.mutations[m].operation == "DEDUPLICATE" and took & came)
            if took & touchable or any(
                _key(dict(b), k) == _key(dict(w), k) for k in keys for b in brought for w in went
            ):
                conflicts.add(self.mutations[m].request_id)
                # It is to be undone first, and so is what touched the rows that it brought.
                touchable |= brought
        left: list[Row] | None = []
        missing = Counter(came)
        for row in self.rows:
            content = tuple(now(row).items())
            if missing[content] > 0:
                missing[content] -= 1
            else:
                left.append(row)
        back = [dict(row) for row in went.elements()]
        rows = None if +missing or returned & went or is_certain else left + back
        return Expected([dict(row) for row in came.elements()], back, rows, frozenset(conflicts))


def _has(mutation: Mutation, column: str) -> bool:
    """Whether the table had a column when the change was made."""
    return column in mutation.columns


def _key(row: Row, keys: tuple[str, ...]) -> Any:
    """What a row is met by; no two rows meet by a null."""
    values = tuple(row.get(key) for key in keys)
    return object() if None in values else values
