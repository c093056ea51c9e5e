"""DIFF: the rows that tell two states of a table apart, whatever happened between them."""

from typing import Any

import pytest

from tests.harness import Firn, wait_until
from tests.integration.test_backups import BY_KIND, Shop

FIELDS = {"fields": {"id": {"type": "long"}, "kind": {"type": "string"}}, "primary_key": ["id"]}


def diff(shop: Shop, before: Any, after: Any = None, **parts: Any) -> dict[str, Any]:
    asked = {"from_snapshot": before} | ({} if after is None else {"to_snapshot": after}) | parts
    return shop.ok("DIFF", **asked)


def pages_of(shop: Shop, before: Any, limit: int, **parts: Any) -> list[dict[str, Any]]:
    found = diff(shop, before, limit=limit, **parts)
    changes = list(found["changes"])
    while "next_cursor" in found:
        found = diff(shop, before, limit=limit, cursor=found["next_cursor"], **parts)
        changes += found["changes"]
    return changes


def counts(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["records_inserted"], found["records_deleted"], found["records_updated"]


def row(number: int, kind: str = "a") -> dict[str, Any]:
    return {"id": number, "kind": kind}


def inserted(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"change": "inserted", "after": r} for r in rows]


def deleted(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"change": "deleted", "before": r} for r in rows]


def updated(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"change": "updated", "before": b, "after": a} for b, a in pairs]


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


@pytest.fixture
def keyed(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant, schema=FIELDS)


def head(shop: Shop) -> int:
    found = shop.loaded.current_snapshot_id
    assert found is not None
    return found


def test_rows_are_paired_by_the_primary_key(keyed: Shop) -> None:
    first = keyed.write(1, 2, 3)
    keyed.ok("UPDATE", filter={"id": 2}, updates={"kind": "b"})
    keyed.ok("DELETE", filter={"id": 3})
    last = keyed.write(4)
    found = diff(keyed, first, last)
    assert counts(found) == (1, 1, 1)
    assert found["changes"] == [*updated((row(2), row(2, "b"))), *deleted(row(3)), *inserted(row(4))]
    assert (found["key_cols"], found["from_snapshot"], found["to_snapshot"]) == (["id"], str(first), str(last))
    back = diff(keyed, last, first)
    assert counts(back) == (1, 1, 1)
    assert back["changes"] == [*updated((row(2, "b"), row(2))), *inserted(row(3)), *deleted(row(4))]


@pytest.mark.thorough
def test_without_a_key_an_update_is_a_row_gone_and_a_row_come(shop: Shop) -> None:
    first = shop.write(1, 2)
    shop.ok("UPDATE", filter={"id": 2}, updates={"kind": "b"})
    for found in (diff(shop, first), diff(shop, first, key_cols=[])):
        assert (counts(found), found["key_cols"]) == ((1, 1, 0), [])
        assert found["changes"] == [*deleted(row(2)), *inserted(row(2, "b"))]
    found = diff(shop, first, key_cols=["id"])
    assert (counts(found), found["changes"]) == ((0, 0, 1), updated((row(2), row(2, "b"))))


def test_rows_that_are_there_twice_count_twice(shop: Shop) -> None:
    first = shop.write(1, 1, 1, 2)
    last = shop.write(1, 1, 3, 3)
    assert diff(shop, first, last)["changes"] == inserted(row(1), row(1), row(3), row(3))
    shop.ok("DELETE", filter={"id": 1})
    shop.write(1, 1)
    assert diff(shop, first)["changes"] == [*deleted(row(1)), *inserted(row(3), row(3))]
    assert counts(diff(shop, first, limit=0)) == (2, 1, 0)


@pytest.mark.thorough
def test_rows_that_share_a_key_are_paired_as_far_as_both_sides_reach(shop: Shop) -> None:
    shop.write(1, kind="a")
    first = shop.write(1, kind="b")
    shop.ok("UPDATE", filter={"id": 1}, updates={"kind": {"expression": "concat(kind, '!')"}})
    last = shop.write(1, kind="c")
    found = diff(shop, first, last, key_cols=["id"])
    assert counts(found) == (1, 0, 2)
    assert found["changes"] == [
        *updated((row(1, "a"), row(1, "a!")), (row(1, "b"), row(1, "b!"))),
        *inserted(row(1, "c")),
    ]


def test_files_that_both_hold_are_not_opened(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_KIND)
    for kind in "abc":
        shop.write(ord(kind), kind=kind)
    first = head(shop)
    shop.ok("DELETE", filter={"kind": "b"})
    found = diff(shop, first)
    assert (found["files_read"], found["files_shared"], found["changes"]) == (1, 2, deleted(row(98, "b")))
    for path in {r.file_path for r in shop.sql("SELECT file_path FROM {t}.files")}:
        # What is read after this fails.
        open(path.removeprefix("file:"), "wb").close()
    assert diff(shop, first)["changes"] == deleted(row(98, "b"))


def test_between_states_with_only_rewriting_between_them_nothing_is_read(shop: Shop) -> None:
    for i in range(4):
        shop.write(i)
    first = head(shop)
    assert shop.ok("COMPACT", force=True)["compacted"]
    for found in (diff(shop, first), diff(shop, head(shop), first)):
        assert (counts(found), found["changes"], found["files_read"]) == ((0, 0, 0), [], 0)
    last = shop.write(9)
    found = diff(shop, first, last)
    assert (found["changes"], found["files_read"]) == (inserted(row(9)), 6)


def test_states_off_each_others_line_are_compared(shop: Shop) -> None:
    """As another program's rollback leaves them."""
    first = shop.write(1)
    away = shop.write(2)
    shop.sql(f"CALL firn.system.rollback_to_snapshot('{'.'.join(shop.loaded.name.identifier)}', {first})")
    here = shop.write(3)
    assert diff(shop, away, here)["changes"] == [*deleted(row(2)), *inserted(row(3))]
    assert diff(shop, here, away)["changes"] == [*inserted(row(2)), *deleted(row(3))]


@pytest.mark.thorough
def test_a_state_is_named_by_id_tag_backup_or_time(shop: Shop) -> None:
    first = shop.write(1)
    shop.sql("ALTER TABLE {t} CREATE TAG `before`")
    backup = shop.ok("DELETE", all=True, create_backup=True)["backup"]
    shop.write(2)
    for name in (first, str(first), "before", backup):
        assert diff(shop, name)["from_snapshot"] == str(first)
    assert diff(shop, first, "2999-01-01")["to_snapshot"] == str(head(shop))
    assert counts(diff(shop, "before", backup)) == (0, 0, 0)


def test_pages_follow_each_other_without_gaps(keyed: Shop) -> None:
    first = keyed.write(*range(20))
    keyed.ok("UPDATE", filter={"id": {"lt": 7}}, updates={"kind": "b"})
    keyed.ok("DELETE", filter={"id": {"gte": 15}})
    keyed.write(*range(30, 40))
    whole = diff(keyed, first)
    assert (counts(whole), "next_cursor" in whole) == ((10, 5, 7), False)
    pages: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        found = diff(keyed, first, limit=6, **cursor)
        assert counts(found) == (10, 5, 7)
        pages += found["changes"]
        if "next_cursor" not in found:
            break
        assert len(found["changes"]) == 6
        cursor = {"cursor": found["next_cursor"]}
        # The pages stay in the two states, although the later one is the current one.
        keyed.write(100 + len(pages))
    assert pages == whole["changes"]


def test_a_cursor_of_states_that_have_expired_is_refused(keyed: Shop) -> None:
    first = keyed.write(1, 2, 3)
    keyed.write(4, 5)
    cursor = diff(keyed, first, limit=1)["next_cursor"]
    keyed.write(6)
    keyed.ok("COMPACT", force=True, snapshot_retention_hours=0)
    error = keyed.refused("DIFF", "SNAPSHOT_NOT_FOUND", 404, from_snapshot=first, limit=1, cursor=cursor)
    assert error["field"] == "cursor"


@pytest.mark.thorough
def test_far_pages_are_as_near_ones(keyed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keyed.write(*range(20))
    keyed.ok("UPDATE", filter={"id": {"lt": 7}}, updates={"kind": "b"})
    keyed.write(*range(30, 40))
    near = [pages_of(keyed, first, 4, **k) for k in ({}, {"key_cols": []})]
    monkeypatch.setattr("service.engine.sql.diff_sql._MOST_IN_MEMORY", 3)
    far = [pages_of(keyed, first, 4, **k) for k in ({}, {"key_cols": []})]
    assert near == far


class TestDeleteFiles:
    def test_rows_that_delete_files_take_out_are_gone(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant, schema=FIELDS)
        shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        shop.write(1, 2, 3)
        first = shop.write(4, 5)
        shop.sql("DELETE FROM {t} WHERE id = 2")
        second = head(shop)
        assert shop.sql("SELECT * FROM {t}.delete_files"), "nothing to test"
        found = diff(shop, first, second)
        assert (found["changes"], found["files_read"], found["files_shared"]) == (deleted(row(2)), 1, 2)
        shop.sql("DELETE FROM {t} WHERE id = 5")
        assert diff(shop, first)["changes"] == deleted(row(2), row(5))
        assert diff(shop, second)["changes"] == deleted(row(5))
        assert diff(shop, head(shop), first)["changes"] == inserted(row(2), row(5))


class TestOtherColumns:
    @pytest.mark.thorough
    def test_a_renamed_column_is_the_same_and_an_added_one_was_null(self, keyed: Shop) -> None:
        first = keyed.write(1, 2)
        keyed.sql("ALTER TABLE {t} RENAME COLUMN kind TO sort")
        keyed.sql("ALTER TABLE {t} ADD COLUMN kind STRING")
        keyed.ok("WRITE", records=[{"id": 3, "sort": "s", "kind": "k"}])
        found = diff(keyed, first)
        assert found["changes"] == inserted({"id": 3, "sort": "s", "kind": "k"})
        keyed.ok("UPDATE", filter={"id": 1}, updates={"kind": "x"})
        one = {"id": 1, "sort": "a", "kind": None}
        found = diff(keyed, first)
        assert found["changes"] == [
            *updated((one, {**one, "kind": "x"})),
            *inserted({"id": 3, "sort": "s", "kind": "k"}),
        ]
        back = diff(keyed, head(keyed), first)
        assert back["changes"] == [
            *updated(({**one, "kind": "x"}, one)),
            *deleted({"id": 3, "sort": "s", "kind": "k"}),
        ]

    @pytest.mark.thorough
    def test_a_dropped_column_is_not_compared_unless_both_had_it(self, keyed: Shop) -> None:
        first = keyed.write(1, 2)
        keyed.ok("UPDATE", filter={"id": 1}, updates={"kind": "b"})
        second = head(keyed)
        keyed.sql("ALTER TABLE {t} DROP COLUMN kind")
        keyed.ok("WRITE", records=[{"id": 3}])
        assert diff(keyed, first, second)["changes"] == updated((row(1), row(1, "b")))
        assert diff(keyed, first)["changes"] == inserted({"id": 3})
        assert diff(keyed, head(keyed), second)["changes"] == deleted({"id": 3})

    @pytest.mark.thorough
    def test_a_widened_value_is_the_same_value(self, firn: Firn, tenant: str) -> None:
        fields = {
            "id": {"type": "long"},
            "n": {"type": "integer"},
            "f": {"type": "float"},
            "d": {"type": "decimal(5,2)"},
        }
        shop = Shop(firn, tenant, schema={"fields": fields, "primary_key": ["id"]})
        shop.ok("WRITE", records=[{"id": i, "n": i, "f": 0.5, "d": "1.50"} for i in range(3)])
        first = head(shop)
        for change in ("n TYPE BIGINT", "f TYPE DOUBLE", "d TYPE DECIMAL(9,2)"):
            shop.sql(f"ALTER TABLE {{t}} ALTER COLUMN {change}")
        shop.ok("UPDATE", filter={"id": 1}, updates={"n": 2**40})
        was = {"id": 1, "n": 1, "f": 0.5, "d": "1.50"}
        found = diff(shop, first)
        assert [c["before"]["id"] for c in found["changes"]] == [1]
        assert found["changes"][0]["after"]["n"] == 2**40
        assert (found["changes"][0]["before"]["n"], counts(found)) == (was["n"], (0, 0, 1))


@pytest.mark.thorough
def test_every_type_compares(firn: Firn, tenant: str) -> None:
    from tests.contract import rich

    address = {"tenant_id": tenant, "table": "rich"}
    firn.ok({**rich.CREATE, **address})
    first = firn.ok({**rich.WRITE, **address})["metadata"]["snapshot_id"]
    changed = {**rich.ROW, "sizes": {"s": 2}, "home": {"city": "Bern", "floors": [1, None, 2]}}
    firn.ok({"operation": "UPSERT", **address, "records": [changed, {"id": 5, "name": "Cy"}]})
    found = firn.ok({"operation": "DIFF", **address, "from_snapshot": first})
    assert counts(found) == (1, 0, 1)
    rows = {r["id"]: r for r in firn.rows(tenant, "rich")}
    before = {r["id"]: r for r in firn.rows(tenant, "rich", as_of=first)}
    assert found["changes"] == [*updated((before[1], rows[1])), *inserted(rows[5])]
    assert firn.ok({"operation": "DIFF", **address, "from_snapshot": first, "key_cols": []})["records_deleted"] == 1


class TestRefusals:
    def test_a_state_that_is_not_there_is_told_with_the_oldest_that_is(self, shop: Shop) -> None:
        first = shop.write(1)
        for field, asked in (
            ("from_snapshot", {"from_snapshot": 5}),
            ("to_snapshot", {"from_snapshot": first, "to_snapshot": 5}),
            ("from_snapshot", {"from_snapshot": "2001-01-01"}),
        ):
            refused = shop.refused("DIFF", "SNAPSHOT_NOT_FOUND", 404, **asked)
            assert (refused["field"], str(first) in refused["message"]) == (field, True)
        shop.sql("ALTER TABLE {t} CREATE TAG `before`")
        refused = shop.refused("DIFF", "SNAPSHOT_NOT_FOUND", 404, from_snapshot="befor")
        assert refused["suggestion"] == "before"

    def test_keys_are_columns_of_plain_types(self, shop: Shop) -> None:
        first = shop.write(1)
        assert shop.refused("DIFF", "UNKNOWN_FIELD", from_snapshot=first, key_cols=["idd"])["suggestion"] == "id"
        assert shop.refused("DIFF", "INVALID_REQUEST", from_snapshot=first, key_cols=["id", "id"])
        shop.refused("DIFF", "INVALID_REQUEST", from_snapshot=first, limit=10_001)

    def test_a_table_without_a_snapshot_has_none_to_compare(self, shop: Shop) -> None:
        assert "it has no commits yet" in shop.refused("DIFF", "SNAPSHOT_NOT_FOUND", 404, from_snapshot=1)["message"]


@pytest.mark.thorough
def test_columns_that_a_repartition_works_out_are_updates(keyed: Shop) -> None:
    first = keyed.write(1, 2)
    partition = {"partitions": [{"field": "initial"}]}
    keyed.ok("REPARTITION", partition=partition, transform={"initial": {"expression": "substring(kind, 1, 1)"}})
    found = diff(keyed, first)
    assert found["changes"] == updated(*(({**row(i), "initial": None}, {**row(i), "initial": "a"}) for i in (1, 2)))


@pytest.mark.thorough
def test_states_from_before_a_column_that_the_table_is_partitioned_by_are_compared(keyed: Shop) -> None:
    first = keyed.write(1, 2)
    keyed.sql("ALTER TABLE {t} RENAME COLUMN kind TO sort")
    keyed.ok("UPDATE", filter={"id": 1}, updates={"sort": "b"})
    second = head(keyed)
    keyed.sql("ALTER TABLE {t} ADD COLUMN kind STRING")
    keyed.ok("REPARTITION", partition={"partitions": [{"field": "kind"}]})
    keyed.ok("WRITE", records=[{"id": 3, "sort": "s", "kind": "k"}])
    was, changed = {"id": 1, "sort": "a"}, {"id": 1, "sort": "b"}
    assert diff(keyed, first, second)["changes"] == updated((was, changed))
    assert diff(keyed, second, first)["changes"] == updated((changed, was))
    assert diff(keyed, first)["changes"][0]["after"] == {**changed, "kind": None}


@pytest.mark.large
@pytest.mark.timeout(900)
def test_a_million_differences_are_counted_and_read_from_anywhere(keyed: Shop) -> None:
    keyed.sql("INSERT INTO {t} SELECT id, 'a' FROM range(1000000)")
    first = head(keyed)
    keyed.ok("UPDATE", all=True, updates={"kind": "b"})
    found = diff(keyed, first, limit=10_000)
    for page in range(12):
        assert counts(found) == (0, 0, 1_000_000)
        assert [change["after"]["id"] for change in found["changes"]] == list(
            range(page * 10_000, page * 10_000 + 10_000)
        )
        found = diff(keyed, first, limit=10_000, cursor=found["next_cursor"])
    assert counts(diff(keyed, first, key_cols=[], limit=1)) == (1_000_000, 1_000_000, 0)


@pytest.mark.thorough
def test_a_comparison_runs_as_a_job_and_its_cursor_serves_both_ways(keyed: Shop) -> None:
    first = keyed.write(1, 2, 3)
    keyed.ok("UPDATE", filter={"id": 2}, updates={"kind": "b"})
    keyed.ok("DELETE", filter={"id": 3})
    at_once = diff(keyed, first, limit=1)
    answer = keyed.ok("DIFF", **{"from_snapshot": first, "limit": 1, "async": True})

    def job() -> dict[str, Any]:
        found: dict[str, Any] = keyed.firn.client.get(answer["status_url"]).json()["job"]
        return found

    wait_until(lambda: "ended_at" in job(), 60)
    ended = job()
    assert (ended["kind"], ended["state"]) == ("DIFF", "done")
    assert (ended["progress"]["phase"], ended["progress"]["files_total"] > 0) == ("done", True)
    result = ended["result"]
    assert {**result, "metadata": 0} == {**at_once, "metadata": 0}
    rest = diff(keyed, first, cursor=result["next_cursor"])
    assert [*result["changes"], *rest["changes"]] == diff(keyed, first)["changes"]


def test_states_that_do_not_exist_are_refused_before_a_job_begins(keyed: Shop) -> None:
    keyed.write(1)
    request = {"operation": "DIFF", **keyed.address, "from_snapshot": 1, "async": True}
    keyed.firn.fail(request, "SNAPSHOT_NOT_FOUND", 404)


def test_spark_compares_the_same_if_it_reads_the_rows_itself(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shop.write(1, 2, 2, 3)
    shop.ok("UPDATE", filter={"id": 2}, updates={"kind": "b"})
    shop.ok("DELETE", filter={"id": 3})
    shop.write(4)
    few = [diff(shop, first, **how) for how in ({}, {"key_cols": ["id"]}, {"limit": 0}, {"limit": 2})]
    monkeypatch.setattr("service.queries.diff.few_rows", lambda *sides: None)
    read = [diff(shop, first, **how) for how in ({}, {"key_cols": ["id"]}, {"limit": 0}, {"limit": 2})]
    assert [{**one, "metadata": 0} for one in few] == [{**one, "metadata": 0} for one in read]
