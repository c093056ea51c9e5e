"""DIFF between any two snapshots is the difference of a model, whatever made them."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import Firn
from tests.integration.test_backups import Shop

FIELDS = {"id": {"type": "long"}, "kind": {"type": "string"}, "n": {"type": "integer"}}
LAYOUTS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"field": "id", "transform": "bucket", "num_buckets": 2}],
    [{"field": "id", "transform": "truncate", "width": 4}],
)
# A row by its columns' numbers, which outlive their names.
Row = dict[int, Any]
Content = tuple[Any, ...]


@dataclass(frozen=True)
class State:
    """A snapshot as the model has it."""

    made: int
    columns: dict[int, str]
    rows: tuple[Row, ...]


class Life:
    """A table beside a list of rows; each change is made to both."""

    def __init__(self, firn: Firn, tenant: str, luck: random.Random, row_level: str) -> None:
        self.luck = luck
        self.shop = Shop(firn, tenant, schema={"fields": FIELDS}, properties={"row_level": row_level})
        self.shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        self.columns = dict(enumerate(FIELDS))
        self.numbers = itertools.count(len(FIELDS))
        self.rows: list[Row] = []
        self.states: dict[int, State] = {}
        self.backups: dict[str, int] = {}
        self.kinds = {
            "append": self.append,
            "append the same": self.append_the_same,
            "overwrite": self.overwrite,
            "upsert": self.upsert,
            "update": self.update,
            "delete": self.delete,
            "deduplicate": self.deduplicate,
            "delete by a file beside": self.delete_beside,
            "compact": self.compact,
            "repartition": self.repartition,
            "restore": self.restore,
            "roll back": self.roll_back,
            "another program goes back": self.set_back,
            "add a column": self.add_column,
            "rename a column": self.rename_column,
            "drop a column": self.drop_column,
            "widen a column": self.widen_column,
        }

    def live(self, changes: int) -> None:
        """So many changes, every kind of them as often as another."""
        self.append()
        self.note()
        while changes > 0:
            for kind in self.luck.sample(sorted(self.kinds), min(changes, len(self.kinds))):
                self.kinds[kind]()
                self.note()
                changes -= 1

    def note(self) -> None:
        """What the table holds is what the model holds; and which snapshot that is."""
        table = self.shop.loaded
        found = self.shop.ok("QUERY", limit=1000)["data"]
        names = list(self.columns.values())
        assert Counter(tuple(row[name] for name in names) for row in found) == self.contents(self.rows, self.columns)
        snapshot_id = table.current_snapshot_id
        assert snapshot_id is not None
        if snapshot_id not in self.states:
            at = table.snapshot(snapshot_id).sequence_number
            self.states[snapshot_id] = State(at, dict(self.columns), tuple(self.rows))

    @staticmethod
    def contents(rows: Any, columns: dict[int, str]) -> Counter[Content]:
        return Counter(tuple(row.get(number) for number in columns) for row in rows)

    # What is sent.

    def records(self, most: int = 5) -> list[dict[str, Any]]:
        return [self.record() for _ in range(self.luck.randint(1, most))]

    def record(self) -> dict[str, Any]:
        luck = self.luck
        made: dict[str, Any] = {"id": luck.randrange(8)}
        for number, name in self.columns.items():
            if number == 1 and luck.random() < 0.8:
                made[name] = luck.choice("abc")
            elif number > 1 and luck.random() < 0.5:
                made[name] = luck.randrange(3)
        return made

    def row_of(self, record: dict[str, Any]) -> Row:
        return {number: record.get(name) for number, name in self.columns.items()}

    def some_ids(self) -> set[int]:
        return set(self.luck.sample(range(8), 3))

    def as_now(self, rows: Any) -> list[Row]:
        """Rows of an earlier state under the columns that there are now."""
        return [{number: row.get(number) for number in self.columns} for row in rows]

    # The changes.

    def append(self) -> None:
        sent = self.records()
        self.shop.ok("WRITE", records=sent)
        self.rows = self.rows + [self.row_of(record) for record in sent]

    def append_the_same(self) -> None:
        sent = [self.record()] * 3
        self.shop.ok("WRITE", records=sent)
        self.rows = self.rows + [self.row_of(record) for record in sent]

    def overwrite(self) -> None:
        sent = self.records(8)
        self.shop.ok("WRITE", records=sent, mode="overwrite")
        self.rows = [self.row_of(record) for record in sent]

    def upsert(self) -> None:
        sent = {record["id"]: record for record in self.records()}
        self.shop.ok("UPSERT", records=list(sent.values()), key_cols=["id"])
        numbers = {name: number for number, name in self.columns.items()}
        known = {row[0] for row in self.rows}
        changed = {key: {numbers[name]: value for name, value in record.items()} for key, record in sent.items()}
        self.rows = [row | changed.get(row[0], {}) for row in self.rows]
        self.rows += [self.row_of(record) for key, record in sent.items() if key not in known]

    def update(self) -> None:
        ids, name = self.some_ids(), self.columns[1]
        self.shop.ok("UPDATE", filter={"id": {"in": sorted(ids)}}, updates={name: "u"})
        self.rows = [row | {1: "u"} if row[0] in ids else row for row in self.rows]

    def delete(self) -> None:
        ids, before = self.some_ids(), self.shop.loaded.current_snapshot_id
        answer = self.shop.ok("DELETE", filter={"id": {"in": sorted(ids)}}, create_backup=True)
        self.rows = [row for row in self.rows if row[0] not in ids]
        if "backup" in answer and before is not None:
            self.backups[answer["backup"]] = before

    def deduplicate(self) -> None:
        everything = list(self.columns.values())
        self.shop.ok("DEDUPLICATE", key_cols=everything)
        seen: set[Content] = set()
        kept = []
        for row in self.rows:
            content = tuple(row.get(number) for number in self.columns)
            kept += [] if content in seen else [row]
            seen.add(content)
        self.rows = kept

    def delete_beside(self) -> None:
        ids = self.some_ids()
        self.shop.sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, sorted(ids)))})")
        self.rows = [row for row in self.rows if row[0] not in ids]

    def compact(self) -> None:
        self.shop.ok("COMPACT", force=True, expire_snapshots=False)

    def repartition(self) -> None:
        self.shop.ok("REPARTITION", partition={"partitions": self.luck.choice(LAYOUTS)})

    def restore(self) -> None:
        if self.backups:
            name = self.luck.choice(sorted(self.backups))
            self.shop.restore(name)
            self.rows = self.as_now(self.states[self.backups[name]].rows)

    def roll_back(self) -> None:
        snapshot_id = self.luck.choice(list(self.states))
        self.shop.ok("ROLLBACK", as_of=snapshot_id)
        self.rows = self.as_now(self.states[snapshot_id].rows)

    def set_back(self) -> None:
        table = self.shop.loaded
        line = {
            int(entry["snapshot_id"])
            for entry in self.shop.ok("HISTORY", limit=1000)["snapshots"]
            if entry["is_ancestor"]
        }
        snapshot_id = self.luck.choice(sorted(line & self.states.keys()))
        self.shop.sql(f"CALL firn.system.rollback_to_snapshot('{'.'.join(table.name.identifier)}', {snapshot_id})")
        self.rows = self.as_now(self.states[snapshot_id].rows)

    def add_column(self) -> None:
        number = next(self.numbers)
        self.shop.sql(f"ALTER TABLE {{t}} ADD COLUMN extra{number} INT")
        self.columns = {**self.columns, number: f"extra{number}"}
        self.rows = self.as_now(self.rows)
        self.append()

    def rename_column(self) -> None:
        number = self.luck.choice([number for number in self.columns if number])
        name = f"renamed{next(self.numbers)}"
        self.shop.sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.columns[number]} TO {name}")
        self.columns = {**self.columns, number: name}
        self.append()

    def drop_column(self) -> None:
        extra = [number for number in self.columns if number > 2]
        if extra:
            number = self.luck.choice(extra)
            self.shop.sql(f"ALTER TABLE {{t}} DROP COLUMN {self.columns[number]}")
            self.columns = {n: name for n, name in self.columns.items() if n != number}
            self.rows = self.as_now(self.rows)
            self.append()

    def widen_column(self) -> None:
        number = self.luck.choice([number for number in self.columns if number > 1])
        self.shop.sql(f"ALTER TABLE {{t}} ALTER COLUMN {self.columns[number]} TYPE BIGINT")
        self.append()


def difference(before: State, after: State, keys: list[int]) -> Iterator[dict[str, Any]]:
    """What DIFF must say, in its order."""
    columns = max(before, after, key=lambda state: state.made).columns
    had, has = Life.contents(before.rows, columns), Life.contents(after.rows, columns)
    sides: dict[Content, dict[str, list[Content]]] = defaultdict(lambda: {"before": [], "after": []})
    places = [list(columns).index(number) for number in keys] or list(range(len(columns)))
    for side, contents in (("before", had - has), ("after", has - had)):
        for content in sorted(contents.elements(), key=nulls_first):
            sides[tuple(content[place] for place in places)][side].append(content)
    for key in sorted(sides, key=nulls_first):
        for gone, come in itertools.zip_longest(sides[key]["before"], sides[key]["after"]):
            change = "inserted" if gone is None else "deleted" if come is None else "updated"
            sides_of_row = {"before": named(gone, columns), "after": named(come, columns)}
            yield {"change": change, **{side: row for side, row in sides_of_row.items() if row is not None}}


def named(content: Content | None, columns: dict[int, str]) -> dict[str, Any] | None:
    return None if content is None else dict(zip(columns.values(), content, strict=True))


def nulls_first(content: Content) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in content]


def check(life: Life, pairs: int) -> None:
    """Some pairs of states, in whichever direction, with and without a key."""
    luck, seen = life.luck, Counter[str]()
    for _ in range(pairs):
        one, other = luck.choice(list(life.states)), luck.choice(list(life.states))
        before, after = life.states[one], life.states[other]
        later = max(before, after, key=lambda state: state.made)
        keys = luck.choice([[], [0], [1], [0, 1]])
        asked = {"from_snapshot": one, "to_snapshot": other, "key_cols": [later.columns[number] for number in keys]}
        expected = list(difference(before, after, keys))
        answer = life.shop.ok("DIFF", **asked)
        assert answer["changes"] == expected, asked
        counts = Counter(change["change"] for change in expected)
        assert {kind: answer[f"records_{kind}"] for kind in ("inserted", "deleted", "updated")} == {
            kind: counts[kind] for kind in ("inserted", "deleted", "updated")
        }
        seen += counts
        first, then = luck.randrange(1, 6), luck.randrange(1, 6)
        page = life.shop.ok("DIFF", **asked, limit=first)
        assert page["changes"] == expected[:first]
        assert ("next_cursor" in page) == (first < len(expected))
        if "next_cursor" in page:
            page = life.shop.ok("DIFF", **asked, limit=then, cursor=page["next_cursor"])
            assert page["changes"] == expected[first : first + then]
            assert ("next_cursor" in page) == (first + then < len(expected))
    assert len(seen) == 3, "a kind of difference was never met"


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row_level", ["copy_on_write", "merge_on_read"])
def test_the_difference_of_any_two_snapshots_is_that_of_a_model(firn: Firn, tenant: str, row_level: str) -> None:
    life = Life(firn, tenant, random.Random(7), row_level)
    life.live(len(life.kinds))
    check(life, 8)


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("row_level", "seed"), zip(["merge_on_read", "copy_on_write", "auto"], range(3), strict=True))
def test_the_difference_of_any_two_of_fifty_snapshots_is_that_of_a_model(
    firn: Firn, tenant: str, row_level: str, seed: int
) -> None:
    life = Life(firn, tenant, random.Random(seed), row_level)
    while len(life.states) < 50:
        life.live(len(life.kinds))
    check(life, 100)
