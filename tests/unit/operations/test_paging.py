"""Every list pages in the same way: `limit`, `cursor`, `next_cursor`."""

import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import discover
from service.app import App
from service.errors import InvalidRequest
from service.ledger.jobs import JobRecords
from service.model import cursor
from service.model.names import TableName
from service.operations.operation import Operation
from service.operations.paging import Page, Paged
from tests.harness import Firn
from tests.support.served import served
from tests.unit.iceberg_tables import append
from tests.unit.maintenance.test_compaction_log import compaction

OPERATIONS = {operation.name: operation for operation in discover()}
PAGED = sorted(name for name, operation in OPERATIONS.items() if issubclass(operation.result, Page))
# Lists that are no pages, and why they need none.
BOUNDED = {
    "EXPLAIN_DYNAMIC_TABLE.sources": "tables of a query",
    "EXPLAIN_DYNAMIC_TABLE.hidden_columns": "columns of a query",
    "EXPLAIN_DYNAMIC_TABLE.classes": "kinds of operators",
    "CREATE_DYNAMIC_TABLE.sources": "tables of a query",
    "CREATE_DYNAMIC_TABLE.columns_removed": "columns of a table",
    "CREATE_DYNAMIC_TABLE.columns_added": "columns of a query",
    "CREATE_DYNAMIC_TABLE.classes": "kinds of operators",
    "AUDIT_DYNAMIC_TABLE.sources": "tables of a query",
    "AUDIT_DYNAMIC_TABLE.key_columns": "columns of a query",
    "AUDIT_DYNAMIC_TABLE.examples": "up to 20 rows",
    "ACCEPT_DRIFT.changes": "columns of a file",
    "APPLY_TABLE.changes": "one for each key of the files",
    "CLEAN_ORPHANS.files": "the first 100",
    "COMPACT.periods": "those that were merged just now",
    "COMPACT.periods_skipped": "months or weeks without a file of each date",
    "COMPACT.warnings": "one of each kind",
    "COMPACT.snapshots_kept": "one for each reason",
    "CREATE_KEY.roles": "those of the request, at most 100",
    "ROTATE_KEY.roles": "those of the key, at most 100",
    "DEDUPLICATE.sample": "up to 10 rows",
    "DELETE.sample": "up to 10 rows",
    "DIFF.key_cols": "columns of the request or the schema",
    "INGEST_RANGE.days": "those of the request, at most 3,660",
    "SET_POLICY.dynamic_tables": "those that read one table",
    "DROP_DYNAMIC_TABLE.dropped": "those that depended on one table",
    "EXPORT.files": "the first 1,000",
    "INGEST.warnings": "one of each kind",
    "LIST_TABLES.namespaces_with_tables": "up to 20, on the first page",
    "REFRESH_DYNAMIC_TABLE.tables": "those of one pass",
    "REINITIALISE_TABLE.split_points": "those of the request",
    "REPARTITION.warnings": "one of each kind",
    "RESTORE_BACKUP.estimated": "names of fields",
    "RESTORE_BACKUP.warnings": "one of each kind",
    "ROLLBACK.estimated": "names of fields",
    "ROLLBACK.warnings": "one of each kind",
    "RUN_SCHEDULE.tables": "the first 1,000",
    "TABLE_STATUS.errors": "the last 10",
    "TABLE_STATUS.missing_dates": "the first 1,000",
    "TABLE_STATUS.periods": "one for each month or week",
    "UNDO.sample": "up to 10 rows",
    "UNDO.warnings": "one of each kind",
    "UPDATE.sample": "up to 10 rows",
    "UPSERT.sample": "up to 10 rows",
    "WATCH.files": "those that are not ingested yet",
    "WRITE.sample": "up to 10 rows",
}
TABLE = {"schema": {"fields": {"id": {"type": "long"}}}}


def lists_of(operation: Operation) -> list[str]:
    return [name for name, field in operation.result.model_fields.items() if _is_list(field.annotation)]


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_list_of_any_length_has_pages(name: str) -> None:
    operation = OPERATIONS[name]
    unbounded = [each for each in lists_of(operation) if f"{name}.{each}" not in BOUNDED]
    assert bool(unbounded) == (name in PAGED), unbounded
    assert issubclass(operation.request, Paged) == (name in PAGED)


@pytest.mark.parametrize("name", PAGED)
def test_pages_have_one_way_to_be_named(name: str) -> None:
    request, result = OPERATIONS[name].request.model_fields, OPERATIONS[name].result.model_fields
    assert {"limit", "cursor"} <= request.keys()
    assert "next_cursor" in result
    if name != "QUERY":
        assert not {"offset", "has_more", "truncated"} & (request.keys() | result.keys())


@given(st.text(max_size=20), st.lists(st.integers() | st.text() | st.none() | st.lists(st.integers())), st.data())
def test_a_cursor_leads_back_to_its_place_and_a_damaged_one_nowhere(of: str, place: list[Any], data: Any) -> None:
    text = cursor.write(of, place)
    assert cursor.read(text, of) == place
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda c: c != text[at]))
    for damaged in (text[:at] + other + text[at + 1 :], text[:at], f"{text}A", f"{text}="):
        with pytest.raises(InvalidRequest) as refused:
            cursor.read(damaged, of)
        assert refused.value.field == "cursor"


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


class Named:
    """A list whose items are made and removed by name."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn, self.tenant = firn, tenant

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, "tenant_id": self.tenant, **fields})


class Tables(Named):
    request: ClassVar[dict[str, Any]] = {"operation": "LIST_TABLES"}

    def make(self, name: str) -> None:
        self.ask("CREATE_TABLE", table=name, **TABLE)

    def remove(self, name: str) -> None:
        self.ask("DROP_TABLE", table=name, purge=True, confirm=True)

    def names(self, answer: dict[str, Any]) -> list[str]:
        return list(answer["tables"])


class Detailed(Tables):
    request: ClassVar[dict[str, Any]] = {"operation": "LIST_TABLES", "details": True}

    def names(self, answer: dict[str, Any]) -> list[str]:
        assert [details["table"] for details in answer["details"]] == answer["tables"]
        return list(answer["tables"])


class Recommended(Tables):
    request: ClassVar[dict[str, Any]] = {"operation": "RECOMMEND"}

    def names(self, answer: dict[str, Any]) -> list[str]:
        return [each["table"] for each in answer["recommendations"]]


class Dropped(Tables):
    """What is dropped is in the list, and leaves it when it is restored."""

    request: ClassVar[dict[str, Any]] = {"operation": "LIST_TABLES", "include_dropped": True}

    def make(self, name: str) -> None:
        super().make(name)
        self.ask("DROP_TABLE", table=name)

    def remove(self, name: str) -> None:
        self.ask("RESTORE_TABLE", table=name)
        super().remove(name)

    def names(self, answer: dict[str, Any]) -> list[str]:
        assert answer["tables"] == []
        return [each["table"] for each in answer["dropped"]]


class Namespaces(Named):
    request: ClassVar[dict[str, Any]] = {"operation": "LIST_NAMESPACES"}

    def make(self, name: str) -> None:
        self.ask("CREATE_NAMESPACE", namespace=name)

    def remove(self, name: str) -> None:
        self.ask("DROP_NAMESPACE", namespace=name)

    def names(self, answer: dict[str, Any]) -> list[str]:
        return list(answer["namespaces"])


class Schedules(Named):
    request: ClassVar[dict[str, Any]] = {"operation": "LIST_SCHEDULES"}

    def make(self, name: str) -> None:
        self.ask("CREATE_SCHEDULE", name=name, cron="0 2 29 2 *", task={"operation": "COMPACT"})

    def remove(self, name: str) -> None:
        self.ask("DELETE_SCHEDULE", name=name)

    def names(self, answer: dict[str, Any]) -> list[str]:
        return [each["name"] for each in answer["schedules"]]


class Log(Named):
    """Compactions, which several at a time start in the same millisecond."""

    request: ClassVar[dict[str, Any]] = {"operation": "COMPACTION_LOG"}
    listed = False

    def make(self, name: str) -> None:
        records, table = self.firn.app.parts[JobRecords], TableName(self.tenant, "default", "t")
        at = 1_714_557_600_000 + int(name[1:]) // 4
        compaction(records, f"{self.tenant}-{name}", table, "uuid", at, listed=self.listed, created_ms=at)

    def remove(self, name: str) -> None:
        pass  # nothing leaves the log while it is young

    def names(self, answer: dict[str, Any]) -> list[str]:
        return [each["id"].rpartition("-")[2] for each in answer["compactions"]]


class Jobs(Log):
    request: ClassVar[dict[str, Any]] = {"operation": "LIST_JOBS"}
    listed = True

    def names(self, answer: dict[str, Any]) -> list[str]:
        return [each["id"].rpartition("-")[2] for each in answer["jobs"]]


LISTS: list[Callable[[Firn, str], Any]] = [
    Tables, Detailed, Recommended, Dropped, Namespaces, Schedules, Log, Jobs,
]  # fmt: skip


@pytest.mark.parametrize("kind", LISTS, ids=lambda kind: kind.__name__)
def test_pages_neither_repeat_nor_miss_an_item_while_others_come_and_go(
    firn: Firn, tenant: str, kind: Callable[[Firn, str], Any]
) -> None:
    of = kind(firn, tenant)
    luck = random.Random(14)
    stay, go, come = ([f"t{i:02}" for i in range(first, 30, 3)] for first in range(3))
    for name in luck.sample([*stay, *go], 20):
        of.make(name)
    whole = of.names(of.ask(**of.request))
    assert sorted(whole) == sorted([*stay, *go])
    found: list[str] = []
    page = of.ask(**of.request, limit=2)
    while True:
        assert 1 <= len(of.names(page)) <= 4
        found += of.names(page)
        if "next_cursor" not in page:
            break
        for change, names in ((of.make, come), (of.remove, go)):
            if names:
                change(names.pop(luck.randrange(len(names))))
        page = of.ask(**of.request, limit=luck.randrange(1, 5), cursor=page["next_cursor"])
    assert len(found) == len(set(found)), "an item was repeated"
    assert [name for name in found if name in stay] == [name for name in whole if name in stay]


@pytest.mark.parametrize("kind", LISTS, ids=lambda kind: kind.__name__)
def test_a_cursor_belongs_to_its_request(firn: Firn, tenant: str, kind: Callable[[Firn, str], Any]) -> None:
    of = kind(firn, tenant)
    for i in range(3):
        of.make(f"t{i}")
    text = of.ask(**of.request, limit=2)["next_cursor"]
    request: ClassVar[dict[str, Any]] = {"tenant_id": tenant, **of.request, "limit": 2, "cursor": text}
    assert len(of.names(firn.ok(request))) == 1
    for other in ({"tenant_id": f"{tenant}x"}, {"cursor": text[:-1]}, {"cursor": "x"}):
        assert firn.fail({**request, **other}, "INVALID_REQUEST", 400)["field"] == "cursor"
    another = "LIST_TABLES" if of.request["operation"] == "LIST_NAMESPACES" else "LIST_NAMESPACES"
    error = firn.fail({"operation": another, "tenant_id": tenant, "cursor": text}, "INVALID_REQUEST", 400)
    assert (error["field"], "another request" in error["message"]) == ("cursor", True)


def test_tables_and_dropped_tables_are_one_list(firn: Firn, tenant: str) -> None:
    here, gone = Tables(firn, tenant), Dropped(firn, tenant)
    for name in ("b", "a"):
        here.make(name)
    for name in ("c", "d"):
        gone.make(name)
    request: ClassVar[dict[str, Any]] = {**gone.request, "limit": 3}
    page = gone.ask(**request)
    assert (page["tables"], [each["table"] for each in page["dropped"]]) == (["a", "b"], ["d"])
    page = gone.ask(**request, cursor=page["next_cursor"])
    assert (page["tables"], [each["table"] for each in page["dropped"]], "next_cursor" in page) == ([], ["c"], False)


def test_details_come_from_metadata(firn: Firn, tenant: str, app: App) -> None:
    from service.catalog.tables import Catalog

    tables = Tables(firn, tenant)
    tables.make("empty")
    tables.make("full")
    append(app.parts[Catalog].load(TableName(tenant, "default", "full")), None, rows=3)
    firn.ok({"operation": "SET_ONLINE", "tenant_id": tenant, "table": "empty", "online": False})
    empty, full = tables.ask("LIST_TABLES", details=True)["details"]
    nothing = {"records": 0, "files": 0, "bytes": 0, "small_files_count": 0}
    assert empty == {"table": "empty", **nothing, "online": False, "dynamic": False}
    assert (full["records"], full["files"], full["small_files_count"], full["online"]) == (3, 1, 1, True)
    assert full["changed_at"] is not None
    described = tables.ask("DESCRIBE_TABLE", table="full")["description"]
    assert full["bytes"] == described["total_bytes"]


@pytest.mark.parametrize(
    "request_",
    [{"operation": name} for name in ("LIST_JOBS", "LIST_SCHEDULES", "COMPACTION_LOG", "RECOMMEND")],
    ids=str,
)
def test_a_scope_is_a_namespace_or_the_tenant(firn: Firn, tenant: str, request_: dict[str, Any]) -> None:
    for namespace in ("default", "shop"):
        place = {"tenant_id": tenant, "namespace": namespace, "table": "t"}
        firn.ok({"operation": "CREATE_TABLE", **place, **TABLE})
        task = {"operation": "COMPACT"}
        firn.ok({"operation": "CREATE_SCHEDULE", **place, "name": namespace, "cron": "0 2 29 2 *", "task": task})
        records, name = firn.app.parts[JobRecords], TableName(tenant, namespace, "t")
        compaction(records, f"{tenant}-{namespace}", name, "uuid", 1_714_557_600_000, listed=True)

    def listed(**fields: Any) -> int:
        [found] = (
            value for value in firn.ok({**request_, "tenant_id": tenant, **fields}).values() if isinstance(value, list)
        )
        return len(found)

    assert listed() == listed(namespace="default") == listed(namespace="shop") == 1
    assert listed(scope="tenant") == 2
    assert listed(namespace="nowhere") == 0
    both = {**request_, "tenant_id": tenant, "namespace": "shop", "scope": "tenant"}
    assert firn.fail(both, "INVALID_REQUEST", 400)["field"] == "namespace"


def test_a_schedule_for_the_whole_tenant_says_so(firn: Firn, tenant: str) -> None:
    tables = Tables(firn, tenant)
    tables.make("t")
    task = {"cron": "0 2 29 2 *", "task": {"operation": "COMPACT"}}
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "namespace": "shop", "table": "t", **TABLE})
    assert tables.ask("CREATE_SCHEDULE", name="here", **task)["tables"] == 1
    made = tables.ask("CREATE_SCHEDULE", name="everywhere", scope="tenant", **task)
    assert (made["scope"], made["tables"]) == ("tenant", 2)
