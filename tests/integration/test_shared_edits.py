"""Edits of rows by key that share a commit: each is counted, undone and listed as if it were alone."""

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from service.commits.commit import Commits
from service.writes.writes import Writes
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_except
from tests.support.tables import TableById

FIELDS = {
    "id": {"type": "long"},
    "kind": {"type": "string"},
    "left": {"type": "integer"},
    "price": {"type": "decimal(9,2)"},
    "seen": {"type": "timestamptz"},
    "tags": {"type": "array", "items": "string"},
    "size": {"type": "struct", "fields": {"w": {"type": "integer"}, "h": {"type": "integer"}}},
}
KEYED = {"fields": FIELDS, "primary_key": ["id"]}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}
MOST_S = 60
_tables = itertools.count(1)


class Shop(TableById):
    """A table whose requests can be made to share a commit."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, f"shared{next(_tables)}", **{"schema": KEYED, **create})

    def together(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """The responses to requests that share one commit, in their order."""
        writes = self.firn.app.parts[Writes]
        with ThreadPoolExecutor(len(requests)) as pool:
            with self.firn.app.parts[Commits].locks.hold(self.loaded.uuid):
                sent = []
                for n, request in enumerate(requests):
                    sent.append(pool.submit(self.firn.post, request))
                    wait_until(lambda n=n: writes.waiting == n + 1, MOST_S, every=0.005)  # type: ignore[misc]
            return [one.result() for one in sent]

    def upsert(self, *records: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.request("UPSERT", records=list(records), **more)

    def update(self, filter: Any, **values: Any) -> dict[str, Any]:
        return self.request("UPDATE", filter=filter, updates=values)

    def delete(self, filter: Any) -> dict[str, Any]:
        return self.request("DELETE", filter=filter)

    def lefts(self) -> dict[int, int | None]:
        return {row["id"]: row["left"] for row in self.rows()}

    def undo(self, answer: dict[str, Any]) -> dict[str, Any]:
        return self.ok("UNDO", request_id=answer["metadata"]["request_id"])

    def cannot_undo(self, answer: dict[str, Any]) -> list[str]:
        """The requests that must be undone first."""
        error = self.fail("UNDO_CONFLICT", "UNDO", 409, request_id=answer["metadata"]["request_id"])
        ids: list[str] = error["details"]["request_ids"]
        return ids

    @property
    def commits(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ok("HISTORY", limit=1000)["snapshots"]
        return found


def row(number: int, left: int | None = 0, kind: str | None = "a") -> dict[str, Any]:
    return {"id": number, "left": left, "kind": kind}


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in answer.items() if name.startswith("records_") and n}


def request_id(answer: dict[str, Any]) -> str:
    return str(answer["metadata"]["request_id"])


LAYOUTS = ["plain", "partitioned"]
IN_ONE_LAYOUT = pytest.mark.parametrize("shop", thorough_except(["partitioned"], LAYOUTS), indirect=True)


@pytest.fixture(params=LAYOUTS)
def shop(firn: Firn, tenant: str, request: pytest.FixtureRequest) -> Shop:
    return Shop(firn, tenant, **({"partition": BY_KIND} if request.param == "partitioned" else {}))


def test_requests_of_all_kinds_share_one_commit_and_each_is_told_what_it_did(shop: Shop) -> None:
    full = {"price": "9.50", "seen": "2024-02-29T12:00:00.000001Z", "tags": ["x", None], "size": {"w": 1, "h": None}}
    shop.ok("WRITE", records=[{**row(n, n, "ab"[n % 2]), **full} for n in range(6)])
    before = len(shop.commits)
    said = shop.together(
        shop.upsert({"id": 0, "left": 10}, row(7, 7, "c")),
        shop.upsert({"id": 0, "left": 10}),
        shop.request("WRITE", records=[row(8, 8)]),
        shop.update({"id": {"in": [0, 8]}, "left": {"gte": 10}}, left=11, price="1.25"),
        shop.delete({"id": 1}),
        shop.upsert(row(1, 100, "c")),
        shop.delete({"id": 99}),
    )
    assert [counts(one) for one in said] == [
        {"records_updated": 1, "records_inserted": 1},
        {"records_unchanged": 1},
        {"records_written": 1},
        {"records_updated": 1},
        {"records_deleted": 1},
        {"records_inserted": 1},
        {},
    ]
    assert len({one["metadata"]["snapshot_id"] for one in said}) == 1
    assert len(shop.commits) == before + 1
    assert shop.lefts() == {0: 11, 1: 100, 2: 2, 3: 3, 4: 4, 5: 5, 7: 7, 8: 8}
    rows = {r["id"]: r for r in shop.rows()}
    untouched = {**row(2, 2), **full, "price": "9.50"}
    assert rows[2] == untouched
    assert rows[0] == {**untouched, "id": 0, "left": 11, "price": "1.25"}
    assert rows[1] == {**dict.fromkeys(FIELDS), **row(1, 100, "c")}


def test_history_lists_each_request_and_the_commit_as_a_whole(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(1), row(2)])
    a, b, _ = shop.together(shop.upsert(row(1, 5), row(3)), shop.delete({"id": 2}), shop.delete({"id": 77}))
    newest = shop.commits[0]
    assert newest["operation"] == "MIXED"
    assert newest["request_ids"] == [request_id(a), request_id(b)]
    assert (newest["records_added"], newest["records_removed"], newest["records_updated"]) == (1, 1, 1)
    assert newest["requests"] == [
        {
            "request_id": request_id(a),
            "operation": "UPSERT",
            "records_added": 1,
            "records_removed": 0,
            "records_updated": 1,
        },
        {
            "request_id": request_id(b),
            "operation": "DELETE",
            "records_added": 0,
            "records_removed": 1,
            "records_updated": 0,
        },
    ]


def test_values_of_every_shape_are_set_as_an_edit_alone_sets_them(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(1), row(2)])
    values = {
        "tags": ["q", None],
        "size": {"w": 5, "h": None},
        "seen": "2024-01-01T00:00:00+02:00",
        "price": 7,
        "left": None,
    }
    together, _ = shop.together(shop.update({"id": 1}, **values), shop.upsert(row(9)))
    alone = shop.ok("UPDATE", filter={"expression": "id = 2"}, updates=values)
    assert counts(together) == counts(alone) == {"records_updated": 1}
    one, two, _ = shop.rows()
    assert {**one, "id": 2} == two


@pytest.mark.thorough
@pytest.mark.parametrize("row_level", ["copy_on_write", "auto", "merge_on_read"])
def test_the_table_says_how_rows_are_deleted(firn: Firn, tenant: str, row_level: str) -> None:
    shop = Shop(firn, tenant, properties={"edits": {"row_level": row_level}})
    shop.ok("WRITE", records=[row(n, n) for n in range(10)])
    said = shop.together(shop.upsert({"id": 1, "left": 100}), shop.delete({"id": 2}), shop.update({"id": 1}, left=101))
    assert [counts(one) for one in said] == [{"records_updated": 1}, {"records_deleted": 1}, {"records_updated": 1}]
    again = shop.together(shop.upsert({"id": 2, "left": 5}), shop.delete({"id": 3}), shop.upsert({"id": 1, "left": 7}))
    assert [counts(one) for one in again] == [{"records_inserted": 1}, {"records_deleted": 1}, {"records_updated": 1}]
    assert shop.lefts() == {0: 0, 1: 7, 2: 5} | {n: n for n in range(4, 10)}
    # Row 1 was replaced twice, in two files.
    deletes = sum(file.deleted for file in list_files(shop.loaded).data)
    assert deletes == (4 if row_level == "merge_on_read" else 0)
    shop.undo(again[2])
    assert shop.cannot_undo(said[1]) == [request_id(again[0])]
    shop.undo(again[0])
    shop.undo(again[1])
    for answer in reversed(said):
        shop.undo(answer)
    assert shop.lefts() == {n: n for n in range(10)}


@IN_ONE_LAYOUT
def test_a_single_edit_by_key_is_a_commit_of_its_own_with_the_same_answer_as_ever(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(n, n) for n in range(4)])
    answer = shop.firn.ok(shop.upsert({"id": 1, "left": 5}, row(9)))
    assert counts(answer) == {"records_updated": 1, "records_inserted": 1}
    assert (answer["files_affected"], answer["partitions_affected"], answer["compaction_recommended"]) == (1, 1, False)
    assert shop.commits[0]["operation"] == "UPSERT"
    shop.undo(answer)
    assert shop.lefts() == {0: 0, 1: 1, 2: 2, 3: 3}


def test_a_refused_request_does_not_keep_the_others_from_their_commit(firn: Firn, tenant: str) -> None:
    fields = {"id": {"type": "long"}, "name": {"type": "string", "required": True}}
    shop = Shop(firn, tenant, schema={"fields": fields, "primary_key": ["id"]})
    fine, refused = shop.together(shop.upsert({"id": 1, "name": "x"}), shop.upsert({"id": 2}))
    assert counts(fine) == {"records_inserted": 1}
    assert (refused["error"]["code"], refused["error"]["field"]) == ("INVALID_RECORD", "records[0].name")
    assert shop.ids() == [1]


@IN_ONE_LAYOUT
class TestUndo:
    """Each request of a shared commit is undone on its own, as if it had a commit of its own."""

    @pytest.mark.thorough
    def test_those_that_concern_other_rows_are_undone_in_any_order(self, shop: Shop) -> None:
        shop.ok("WRITE", records=[row(n, n) for n in range(4)])
        said = shop.together(
            shop.upsert({"id": 0, "left": 10}, row(7)),
            shop.delete({"id": 1}),
            shop.request("WRITE", records=[row(8)]),
            shop.update({"id": 2}, left=20),
        )
        undone = shop.undo(said[1])
        assert (undone["undone_operation"], undone["records_removed"], undone["records_restored"]) == ("DELETE", 0, 1)
        assert shop.lefts() == {0: 10, 1: 1, 2: 20, 3: 3, 7: 0, 8: 0}
        undone = shop.undo(said[0])
        assert (undone["undone_operation"], undone["records_removed"], undone["records_restored"]) == ("UPSERT", 2, 1)
        shop.undo(said[2])
        shop.undo(said[3])
        assert shop.lefts() == {n: n for n in range(4)}

    def test_those_that_concern_the_same_rows_are_undone_newest_first(self, shop: Shop) -> None:
        shop.ok("WRITE", records=[row(1, 1), row(2, 2)])
        a, b, c = shop.together(
            shop.upsert({"id": 1, "left": 10}), shop.upsert({"id": 1, "left": 20}), shop.delete({"id": 1})
        )
        assert shop.lefts() == {2: 2}
        assert shop.cannot_undo(a) == [request_id(b), request_id(c)]
        assert shop.cannot_undo(b) == [request_id(c)]
        for answer, left in ((c, 20), (b, 10), (a, 1)):
            shop.undo(answer)
            assert shop.lefts() == {1: left, 2: 2}

    @pytest.mark.thorough
    def test_a_row_does_not_come_back_beside_one_that_a_later_request_of_the_commit_gave_its_key(
        self, shop: Shop
    ) -> None:
        shop.ok("WRITE", records=[row(1, 1)])
        gone, new = shop.together(shop.delete({"id": 1}), shop.upsert(row(1, 100)))
        assert shop.cannot_undo(gone) == [request_id(new)]
        shop.firn.ok(shop.delete({"id": 1}))
        shop.undo(gone)
        assert shop.lefts() == {1: 1}

    @pytest.mark.thorough
    def test_later_commits_that_touched_its_rows_name_their_requests(self, shop: Shop) -> None:
        shop.ok("WRITE", records=[row(1, 1), row(2, 2), row(3, 3)])
        first = shop.firn.ok(shop.upsert({"id": 1, "left": 10}, {"id": 2, "left": 20}))
        one, other, idle = shop.together(
            shop.upsert({"id": 1, "left": 11}), shop.upsert({"id": 2, "left": 21}), shop.upsert({"id": 3, "left": 31})
        )
        assert shop.cannot_undo(first) == [request_id(one), request_id(other)]
        shop.undo(other)
        assert shop.cannot_undo(first) == [request_id(one)]
        shop.undo(one)
        shop.undo(first)
        assert shop.lefts() == {1: 1, 2: 2, 3: 31}
        shop.undo(idle)
        assert shop.lefts() == {1: 1, 2: 2, 3: 3}

    @pytest.mark.thorough
    def test_a_compaction_in_between_changes_nothing(self, shop: Shop) -> None:
        shop.ok("WRITE", records=[row(1, 1), row(2, 2)])
        a, b = shop.together(shop.upsert({"id": 1, "left": 10}, row(5)), shop.delete({"id": 2}))
        shop.ok("WRITE", records=[row(6)])
        shop.ok("COMPACT", force=True)
        shop.undo(a)
        shop.undo(b)
        assert shop.lefts() == {1: 1, 2: 2, 6: 0}

    def test_columns_that_were_renamed_and_added_in_the_meantime_are_those_of_the_table(self, shop: Shop) -> None:
        shop.ok("WRITE", records=[row(1, 1), row(2, 2)])
        a, _ = shop.together(shop.upsert({"id": 1, "left": 10}), shop.upsert({"id": 2, "left": 20}))
        shop.ok("ALTER_TABLE", rename_columns={"left": "stock"}, add_columns={"more": {"type": "long"}})
        shop.undo(a)
        assert {r["id"]: (r["stock"], r["more"]) for r in shop.rows()} == {1: (1, None), 2: (20, None)}


def test_a_repeated_request_has_one_effect_and_the_same_answer(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(1, 1)])
    requests = [shop.upsert({"id": 1, "left": n}, row(n), idempotency_key=f"k{n}") for n in (10, 20)]
    first = shop.together(*requests)
    assert [shop.firn.post(request) for request in requests] == first
    assert shop.lefts() == {1: 20, 10: 0, 20: 0}


def test_older_files_are_read_as_the_table_has_their_columns_now(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, schema={"fields": {"id": {"type": "integer"}, "x": {"type": "integer"}}})
    shop.ok("WRITE", records=[{"id": 1, "x": 5}, {"id": 2, "x": 6}])
    shop.ok("ALTER_TABLE", rename_columns={"x": "left"})
    shop.ok("ALTER_TABLE", add_columns={"x": {"type": "string"}})
    answer = shop.firn.ok(shop.upsert({"id": 1, "x": "new"}, key_cols=["id"]))
    assert counts(answer) == {"records_updated": 1}
    assert shop.rows() == [{"id": 1, "left": 5, "x": "new"}, {"id": 2, "left": 6, "x": None}]


@pytest.mark.thorough
@IN_ONE_LAYOUT
def test_small_files_do_not_pile_up_where_rows_are_changed_one_by_one(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(n) for n in range(10)])
    for n in range(12):
        shop.firn.ok(shop.upsert({"id": n % 10, "left": n + 1}))
    assert len(shop.current_files()) == 1


@pytest.mark.thorough
def test_small_files_beside_a_large_one_are_merged_and_each_change_can_still_be_undone(firn: Firn, tenant: str) -> None:
    shop, noise = Shop(firn, tenant), random.Random(1)
    shop.ok("WRITE", records=[row(n, n, noise.randbytes(1000).hex()) for n in range(1200)])
    said = [shop.firn.ok(shop.upsert({"id": n, "left": -n}, row(5000 + n))) for n in range(1, 13)]
    assert [counts(one) for one in said] == [{"records_updated": 1, "records_inserted": 1}] * 12
    assert len(shop.current_files()) <= 1 + 8
    changed = {n: -n for n in range(1, 13)} | {5000 + n: 0 for n in range(1, 13)}
    assert shop.lefts() == {n: n for n in range(1200)} | changed
    for answer in (said[2], said[11], said[0]):
        undone = shop.undo(answer)
        assert (undone["records_removed"], undone["records_restored"]) == (2, 1)
    assert {n for n, left in shop.lefts().items() if left != n} == changed.keys() - {1, 3, 12, 5001, 5003, 5012}


@IN_ONE_LAYOUT
def test_rows_that_delete_files_deleted_stay_deleted(shop: Shop) -> None:
    shop.ok("WRITE", records=[row(n, n) for n in range(8)])
    shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    shop.sql("DELETE FROM {t} WHERE id IN (1, 3)")
    said = shop.together(shop.upsert({"id": 1, "left": 100}), shop.delete({"id": 3}), shop.update({"id": 2}, left=200))
    assert [counts(one) for one in said] == [{"records_inserted": 1}, {}, {"records_updated": 1}]
    assert shop.lefts() == {0: 0, 1: 100, 2: 200, 4: 4, 5: 5, 6: 6, 7: 7}
    shop.undo(said[2])
    assert shop.lefts() == {0: 0, 1: 100, 2: 2, 4: 4, 5: 5, 6: 6, 7: 7}


CLIENTS, KEYS, TURNS = 16, 12, 14


def changed_by(kind: str, key: int, value: int, lefts: dict[int, int]) -> dict[str, int]:
    """What a request must be told, and make of the rows, if all those before it are done."""
    there = key in lefts
    match kind:
        case "WRITE":
            lefts[100_000 + value] = value
            return {"records_written": 1}
        case "DELETE":
            lefts.pop(key, None)
            return {"records_deleted": 1} if there else {}
        case "UPDATE" if not there:
            return {}
    lefts[key] = value
    return {"records_updated": 1} if there else {"records_inserted": 1}


@IN_ONE_LAYOUT
def test_sixteen_clients_change_the_same_rows_and_every_answer_is_that_of_one_after_the_other(shop: Shop) -> None:
    """HISTORY has the order of all requests that changed something; a plain model takes them in this order."""
    first = shop.ok("WRITE", records=[row(key, -key) for key in range(KEYS)])
    answers: dict[str, tuple[str, int, int, dict[str, Any]]] = {}
    lock, start = threading.Lock(), threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        chance = random.Random(number)
        start.wait()
        for turn in range(TURNS):
            value, key = 1000 * (number + 1) + turn, chance.randrange(KEYS)
            kind = chance.choice(["WRITE", "UPSERT", "UPSERT", "UPDATE", "DELETE"])
            match kind:
                case "WRITE":
                    request = shop.request("WRITE", records=[row(100_000 + value, value)])
                case "UPSERT":
                    request = shop.upsert({"id": key, "left": value})
                case "UPDATE":
                    request = shop.update({"id": key}, left=value)
                case _:
                    request = shop.delete({"id": key})
            answer = shop.firn.ok(request)
            with lock:
                answers[request_id(answer)] = (kind, key, value, answer)

    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(client, number) for number in range(CLIENTS)]:
            done.result()
    lefts, ids = {key: -key for key in range(KEYS)}, list[str]()
    commits = shop.commits
    for commit in reversed(commits):
        ids += [name for name in commit["request_ids"] if name != request_id(first)]
    for name in ids:
        kind, key, value, answer = answers[name]
        assert counts(answer) == changed_by(kind, key, value, lefts), name
    assert shop.lefts() == lefts
    assert len(ids) == len(set(ids))
    assert [name for name, (*_, answer) in answers.items() if counts(answer) and name not in ids] == []
    assert len(commits) < CLIENTS * TURNS / 2


WAYS: list[tuple[str, Callable[[Shop], dict[str, Any]]]] = [
    ("an expression", lambda s: s.update({"id": 1}, left={"expression": "left + 1"})),
    ("a backup", lambda s: s.upsert({"id": 1, "left": 2}, create_backup=True)),
    ("a partition filter", lambda s: s.upsert({"id": 1, "left": 2, "kind": "a"}, partition_filter={"kind": "a"})),
    ("a scan", lambda s: s.update({"left": {"lt": 2}}, left=2)),
]


@pytest.mark.parametrize(("why", "ask"), WAYS, ids=[why for why, _ in WAYS])
def test_what_cannot_share_a_commit_works_as_ever(
    firn: Firn, tenant: str, why: str, ask: Callable[[Shop], dict[str, Any]]
) -> None:
    shop = Shop(firn, tenant, partition=BY_KIND)
    shop.ok("WRITE", records=[row(1, 1)])
    assert counts(shop.firn.ok(ask(shop))) == {"records_updated": 1}
    assert shop.lefts() == {1: 2}
