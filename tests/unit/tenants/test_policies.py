"""Every operation about a table whose policy shows its sender only a part of it: refused, or about that part alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handlers import discover
from service.catalog.tables import Catalog
from service.dynamic.definitions import Definitions
from service.dynamic.refresh.passes import Passes
from service.errors import Forbidden
from service.guard.policies import Policies
from service.jobs.jobs import Jobs
from service.jobs.schedules.schedules import Schedules
from service.jobs.schedules.tally import RunTally, TableOutcome
from service.ledger.jobs import JobRecord, JobRecords
from service.ledger.schedules import ScheduleFilter
from service.model import wire
from service.model.call import Call
from service.model.identity.principal import LOCAL, Grant, Principal
from service.model.ingest.reserved import QUARANTINE_OF_PROPERTY
from service.model.names import TableName
from service.model.policy.policy import POLICY_PROPERTY
from service.operations.operation import TableRequest
from service.operations.row_access import ROW_ACCESS, RowAccess
from tests.support.dynamic import Declared
from tests.unit.tenants.guarded import MINE, Guarded, create_table
from tests.unit.tenants.test_two_tenants import OPERATIONS, requests

ADDRESS = {"tenant_id": MINE, "namespace": "shop", "table": "orders"}
NAME = TableName(MINE, "shop", "orders")
RULES = {"reader": {"rows": {"name": "x"}, "columns": {"secret": "hidden"}}}
FIELDS = {"id": {"type": "long", "required": True}, "name": {"type": "string"}, "secret": {"type": "string"}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("home"))
    guarded.ok("mine", {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": FIELDS}})
    guarded.ok("mine", set_policy(RULES))
    yield guarded
    guarded.app.stop()


@dataclass
class Progress:
    phase: str = "done"


def set_policy(rules: Any, **more: Any) -> dict[str, Any]:
    return {"operation": "SET_POLICY", **ADDRESS, "rules": rules, **more}


def test_each_operation_has_a_decision_about_rows() -> None:
    assert {operation.name for operation in discover()} == set(ROW_ACCESS)
    for operation in discover():
        if not issubclass(operation.request, TableRequest) and ROW_ACCESS[operation.name] is RowAccess.WHOLE:
            raise AssertionError(f"{operation.name} names no table that could be checked")


_REFUSED = [name for name, access in ROW_ACCESS.items() if access in (RowAccess.WHOLE, RowAccess.PREVIEW)]


@pytest.mark.parametrize("name", _REFUSED)
def test_an_operation_that_needs_the_whole_table_is_refused_to_whoever_sees_a_part(name: str, guarded: Guarded) -> None:
    sent_at_all = False
    for request in requests(OPERATIONS[name]):
        sent = about_orders(request)
        if sent is None or (sent.get("dry_run") and ROW_ACCESS[name] is RowAccess.PREVIEW):
            continue
        sent_at_all = True
        needs = OPERATIONS[name].access_of(guarded.app.pipeline.parse(sent)[1]).role
        if needs == "admin":
            continue  # no policy binds administrators
        for key in ("writer", "shop", *(["reader"] if needs == "reader" else [])):
            refused = guarded.refused(key, sent)
            assert (refused["status"], refused["code"], refused["field"]) == (403, "FORBIDDEN", "table"), (key, refused)
            assert "policy" in refused["message"]
            assert "secret" not in str(refused)
    assert sent_at_all


def about_orders(request: dict[str, Any]) -> dict[str, Any] | None:
    """An example about the table with the policy; None if its text names another one."""
    config = request.get("config")
    if isinstance(config, str):
        request = {**request, "config": re.sub(r"name: \w+", "name: orders", config, count=1)}
    elif config is not None:
        request = {**request, "config": {**config, "name": "orders"}}
    return None if "sql" in request else {**request, **ADDRESS}


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "UPDATE", "all": True, "updates": {"secret": 1}},
        {"operation": "DELETE", "filter": {"expression": "secret > 1"}},
        {"operation": "UPSERT", "key_cols": ["secret"], "records": [{"secret": "x"}]},
        {"operation": "DEDUPLICATE", "key_cols": ["id"], "order_by": ["secret"]},
        {"operation": "WRITE", "mode": "overwrite", "records": [{"secret": "x"}]},
        {"operation": "WRITE", "mode": "overwrite", "records": [], "partition_filter": {"secret": "x"}},
    ],
    ids=lambda fields: str(fields["operation"]),
)
def test_a_dry_run_knows_only_the_columns_that_its_sender_sees(fields: dict[str, Any], guarded: Guarded) -> None:
    def refused(hidden: str) -> dict[str, Any]:
        asked = wire.parse(wire.render(fields).replace(b"secret", hidden.encode()))
        return guarded.refused("writer", {**ADDRESS, **asked, "dry_run": True})

    found = refused("secret")
    assert (found["status"], found.get("suggestion")) == (400, None)
    assert str(found) == str(refused("absent")).replace("absent", "secret")


def test_an_append_has_no_dry_run_and_appends_nothing(guarded: Guarded) -> None:
    write = {"operation": "WRITE", **ADDRESS, "records": [{"id": 1}]}
    assert guarded.refused("writer", {**write, "dry_run": True})["field"] == "dry_run"
    assert guarded.refused("writer", write)["code"] == "FORBIDDEN"


def test_an_export_of_who_sees_a_part_ignores_idempotency_keys(tmp_path: Path) -> None:
    """The stored response may be from when its sender saw more."""
    guarded = Guarded(tmp_path / "home", FIRN_INGEST__ALLOWED_ROOTS=str(tmp_path))
    config = {"name": "sales", "storage": {"type": "local", "base_path": str(tmp_path / "out"), "format": "csv"}}
    dataset = {"columns": [{"name": "id", "type": "BIGINT"}]}
    place = {"tenant_id": MINE, "table": "sales"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", "tenant_id": MINE, "config": config, "dataset": dataset})
    export = {"operation": "EXPORT", **place, "idempotency_key": "k"}
    first = guarded.ok("writer", export)["metadata"]["request_id"]
    assert guarded.ok("writer", export)["metadata"]["request_id"] == first
    guarded.ok("mine", {"operation": "SET_POLICY", **place, "rules": {"writer": {"rows": {"id": 1}}}})
    assert guarded.ok("writer", export)["metadata"]["request_id"] != first
    guarded.app.stop()


@pytest.mark.parametrize("path", ["records", "records?mode=upsert&key_cols=id", "ingest?date=2024-01-01"])
def test_a_load_is_refused_before_its_body_is_read(path: str, guarded: Guarded) -> None:
    response = guarded.send(
        "POST",
        f"/tables/{MINE}/shop/orders/{path}",
        "writer",
        body=b'{"secret": 5}\n',
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert response.status_code == 403
    assert "policy" in response.text


def test_a_description_shows_what_its_reader_sees(guarded: Guarded) -> None:
    described = {"operation": "DESCRIBE_TABLE", **ADDRESS}
    of_reader = guarded.ok("reader", described)["description"]
    assert list(of_reader["schema"]["fields"]) == ["id", "name"]
    assert of_reader["has_policy"]
    assert "policy" not in of_reader
    assert "metadata_location" not in of_reader  # that file has the policy and all columns
    of_admin = guarded.ok("mine", described)["description"]
    assert list(of_admin["schema"]["fields"]) == ["id", "name", "secret"]
    assert of_admin["policy"] == RULES


@pytest.mark.parametrize("key", ["reader", "writer", "shop"])
def test_only_administrators_set_a_policy(key: str, guarded: Guarded) -> None:
    assert guarded.refused(key, set_policy({}))["code"] == "FORBIDDEN"
    assert guarded.ok("mine", {"operation": "DESCRIBE_TABLE", **ADDRESS})["description"]["policy"] == RULES


def test_nobody_reaches_a_policy_by_the_properties_of_a_table(guarded: Guarded) -> None:
    of_property = {"operation": "ALTER_TABLE", **ADDRESS}
    for name in (POLICY_PROPERTY, "policy"):
        assert guarded.refused("mine", {**of_property, "unset_properties": [name]})["code"] == "INVALID_REQUEST"
        assert guarded.refused("mine", {**of_property, "set_properties": {name: "{}"}})["status"] == 400
        create = {**create_table(MINE, "shop", "other"), "properties": {name: "{}"}}
        assert guarded.refused("mine", create)["status"] == 400


def test_columns_of_a_policy_are_neither_dropped_nor_renamed(guarded: Guarded) -> None:
    alter = {"operation": "ALTER_TABLE", **ADDRESS}
    for change in ({"drop_columns": ["secret"]}, {"rename_columns": {"name": "title"}}):
        refused = guarded.refused("mine", {**alter, **change})
        assert (refused["code"], "SET_POLICY" in refused["message"]) == ("INVALID_SCHEMA", True)


def test_a_policy_goes_where_its_table_goes(guarded: Guarded) -> None:
    place = {**ADDRESS, "table": "moving"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    guarded.ok("mine", {**set_policy(RULES), **place})
    guarded.ok("mine", {"operation": "RENAME_TABLE", **place, "new_name": "moved"})
    moved = {**place, "table": "moved"}
    assert guarded.refused("reader", {"operation": "LIST_PARTITIONS", **moved})["code"] == "FORBIDDEN"
    guarded.ok("mine", {"operation": "DROP_TABLE", **moved})
    guarded.ok("writer", {"operation": "RESTORE_TABLE", **moved})
    assert guarded.refused("reader", {"operation": "LIST_PARTITIONS", **moved})["code"] == "FORBIDDEN"
    guarded.ok("mine", {**set_policy({}), **moved})
    guarded.ok("reader", {"operation": "LIST_PARTITIONS", **moved})


def test_a_policy_is_removed_by_empty_rules_and_the_salt_of_its_hashes_stays(guarded: Guarded) -> None:
    place = {**ADDRESS, "table": "salted"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})

    def stored() -> Any:
        text = guarded.app.parts[Catalog].load(TableName(MINE, "shop", "salted")).properties.get(POLICY_PROPERTY)
        return None if text is None else wire.parse(text)

    first = guarded.ok("mine", {**set_policy(RULES), **place})
    assert first["rules"] == RULES
    assert "warning" not in first
    salt = stored()["salt"]
    assert len(salt) == 32
    guarded.ok("mine", {**set_policy({"reader": {"columns": {"name": "hash"}}}), **place})
    assert stored()["salt"] == salt
    assert guarded.ok("mine", {**set_policy({}), **place})["rules"] == {}
    assert stored() is None


def test_a_policy_that_another_program_broke_shows_nothing(guarded: Guarded) -> None:
    catalog, place = guarded.app.parts[Catalog], {**ADDRESS, "table": "broken"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    for text in (
        "",
        "{}",
        '{"version": 1, "rules": {"reader": {"rows": null, "columns": {"gone": "null"}}}, "salt": "s"}',
    ):
        catalog.set_properties(catalog.load(TableName(MINE, "shop", "broken")), {POLICY_PROPERTY: text})
        for operation in ("QUERY", "DESCRIBE_TABLE", "LIST_PARTITIONS", "WRITE"):
            records = {"records": [{"id": 1}]} if operation == "WRITE" else {}
            refused = guarded.refused("writer", {"operation": operation, **place, **records})
            assert refused["code"] == "FORBIDDEN", (text, operation)
        assert guarded.ok("mine", {"operation": "DESCRIBE_TABLE", **place})["description"]["has_policy"]


def test_the_quarantine_of_a_table_with_a_policy_is_only_for_administrators(guarded: Guarded) -> None:
    catalog = guarded.app.parts[Catalog]
    place = {**ADDRESS, "table": "orders__quarantine"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    name = TableName(MINE, "shop", "orders__quarantine")
    catalog.set_properties(catalog.load(name), {QUARANTINE_OF_PROPERTY: catalog.load(NAME).uuid})
    for operation in ("QUERY", "DESCRIBE_TABLE", "LIST_PARTITIONS"):
        assert guarded.refused("reader", {"operation": operation, **place})["code"] == "FORBIDDEN"
    guarded.ok("mine", {"operation": "LIST_PARTITIONS", **place})


def test_the_result_of_a_job_is_only_for_those_who_see_all_of_its_table(guarded: Guarded) -> None:
    jobs = guarded.app.parts[Jobs]
    table, call = guarded.app.parts[Catalog].load(NAME), Call("r", principal=LOCAL)
    job = jobs.accept("DIFF", table, Progress(), call=call)
    jobs.done(job, b'{"changes": [{"after": {"secret": "x"}}], "metadata": {}}')
    of_admin = guarded.send("GET", f"/jobs/{job.id}", "mine").json()["job"]
    assert "secret" in str(of_admin["result"])
    without = {name: value for name, value in of_admin.items() if name != "result"}
    assert guarded.send("GET", f"/jobs/{job.id}", "reader").json()["job"] == without
    # Nor if the table has another name now, or was dropped.
    moved = {**ADDRESS, "table": "orders2"}
    for there, back in (
        (
            {"operation": "RENAME_TABLE", **ADDRESS, "new_name": "orders2"},
            {"operation": "RENAME_TABLE", **moved, "new_name": "orders"},
        ),
        ({"operation": "DROP_TABLE", **ADDRESS}, {"operation": "RESTORE_TABLE", **ADDRESS}),
    ):
        guarded.ok("mine", there)
        assert guarded.send("GET", f"/jobs/{job.id}", "reader").json()["job"].keys() == without.keys()
        guarded.ok("mine", back)
    place = {**ADDRESS, "table": "unprotected"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    table = guarded.app.parts[Catalog].load(TableName(MINE, "shop", "unprotected"))
    other = jobs.accept("DIFF", table, Progress(), call=call)
    jobs.done(other, b'{"changes": [], "metadata": {}}')
    assert "result" in guarded.send("GET", f"/jobs/{other.id}", "reader").json()["job"]


def test_the_result_of_an_export_is_also_for_who_started_it(guarded: Guarded) -> None:
    jobs, table = guarded.app.parts[Jobs], guarded.app.parts[Catalog].load(NAME)
    for kind, seen_by in (("EXPORT", {"writer", "mine"}), ("DIFF", {"mine"})):
        job = jobs.accept(kind, table, Progress(), call=Call("r", principal=LOCAL), started_by=f"{MINE}/writer")
        jobs.done(job, b'{"files": [], "metadata": {}}')
        keys = ("reader", "writer", "mine")
        assert {key for key in keys if "result" in guarded.send("GET", f"/jobs/{job.id}", key).json()["job"]} == seen_by


def test_a_stored_response_is_not_given_to_whoever_sees_a_part_by_now(guarded: Guarded) -> None:
    place = {**ADDRESS, "table": "stored"}
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    change = {"operation": "SET_ONLINE", **place, "online": False, "idempotency_key": "k"}
    guarded.ok("writer", change)
    guarded.ok("mine", {**set_policy(RULES), **place})
    assert guarded.refused("writer", change)["code"] == "FORBIDDEN"


class TestWhatWasRecordedOfATable:
    """Options and errors can name columns and quote values that its policy hides."""

    HIDDEN = ("secret", "top")
    OPTIONS: dict[str, Any] = {"strategy": "sort", "sort_by": ["name", "secret"]}  # noqa: RUF012

    def test_a_description_names_no_hidden_column_that_compactions_sort_by(self, guarded: Guarded) -> None:
        place = {**ADDRESS, "table": "sorted"}
        guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
        guarded.ok("mine", {"operation": "SET_COMPACTION", **place, **self.OPTIONS})
        guarded.ok("mine", {**set_policy(RULES), **place})
        described = {"operation": "DESCRIBE_TABLE", **place}
        of_reader = guarded.ok("reader", described)["description"]
        assert "secret" not in str(of_reader)
        assert of_reader["compaction"]["sort_by"] == of_reader["properties"]["compaction"]["sort_by"] == ["name"]
        assert guarded.ok("mine", described)["description"]["compaction"]["sort_by"] == self.OPTIONS["sort_by"]

    def test_the_log_of_compactions_has_neither_options_nor_errors(self, guarded: Guarded) -> None:
        uuid = guarded.app.parts[Catalog].load(NAME).uuid
        details = {"request": self.OPTIONS, "error": {"message": "top of secret"}, "stats": {"files_before": 3}}
        record = JobRecord("log", "COMPACT", NAME, uuid, "failed", details=details, started_ms=1, ended_ms=2)
        assert guarded.app.parts[JobRecords].begin(record)
        log = {"operation": "COMPACTION_LOG", **ADDRESS}
        [of_reader] = guarded.ok("reader", log)["compactions"]
        assert not any(word in str(of_reader) for word in self.HIDDEN)
        assert of_reader["stats"] == details["stats"]
        [of_admin] = guarded.ok("mine", log)["compactions"]
        assert (of_admin["request"], of_admin["error"]) == (self.OPTIONS, details["error"])
        # Also if the table has another name now.
        moved = {"operation": "RENAME_TABLE", **ADDRESS, "new_name": "orders3"}
        guarded.ok("mine", moved)
        listed = guarded.ok("reader", {"operation": "COMPACTION_LOG", "tenant_id": MINE, "namespace": "shop"})
        assert not any(word in str(listed) for word in self.HIDDEN)
        guarded.ok("mine", {**moved, "table": "orders3", "new_name": "orders"})

    def test_a_schedule_shows_neither_options_nor_errors(self, guarded: Guarded) -> None:
        task = {"operation": "COMPACT", **self.OPTIONS}
        create = {"operation": "CREATE_SCHEDULE", **ADDRESS, "cron": "0 0 * * *", "task": task}
        guarded.ok("mine", {**create, "name": "of-orders"})
        [schedule] = guarded.app.parts[Schedules].of_tenant(MINE, ScheduleFilter(name="of-orders"), None, 1)
        error = {"code": "INVALID_RECORD", "message": "top is not a date"}
        tally = RunTally(tables=1).plus(TableOutcome("shop", "orders", "failed", error=error))
        times = {"created_ms": 1, "started_ms": 1, "ended_ms": 2}
        records = guarded.app.parts[JobRecords]
        for job_id, table in (("run-of-table", NAME), ("run-of-all", TableName(MINE, "shop", ""))):
            run = JobRecord(job_id, "RUN_SCHEDULE", table, state="failed", progress=tally.dumps(), **times)
            assert records.begin(replace(run, claim=schedule.id))
            of_reader = guarded.send("GET", f"/jobs/{job_id}", "reader").json()["job"]
            assert of_reader["progress"]["failed"] == 1
            assert "top" not in str(of_reader)
            assert error["message"] in guarded.send("GET", f"/jobs/{job_id}", "mine").text
        listing = {"operation": "LIST_SCHEDULES", **ADDRESS, "name": "of-orders", "runs": 5}
        [of_reader] = guarded.ok("reader", listing)["schedules"]
        assert not any(word in str(of_reader) for word in self.HIDDEN)
        assert of_reader["task"] == {"operation": "COMPACT"}
        assert of_reader["last_run"]["failed"] == len(of_reader["runs"][0]["outcomes"]) == 1
        [of_admin] = guarded.ok("mine", listing)["schedules"]
        assert of_admin["task"] == task
        assert of_admin["last_run"]["outcomes"][0]["error"] == error

    def test_a_schedule_of_several_tables_shows_no_options_that_can_name_columns(self, guarded: Guarded) -> None:
        task = {"operation": "COMPACT", **self.OPTIONS, "force": True}
        for scope in ("namespace", "tenant"):
            place = {"tenant_id": MINE, "scope": scope, **({"namespace": "shop"} if scope == "namespace" else {})}
            name = f"of-{scope}"
            guarded.ok(
                "mine", {"operation": "CREATE_SCHEDULE", **place, "cron": "0 0 * * *", "task": task, "name": name}
            )
            listing = {"operation": "LIST_SCHEDULES", **place, "name": name}
            for key in ("reader", "writer"):
                [shown] = guarded.ok(key, listing)["schedules"]
                assert shown["task"] == {"operation": "COMPACT", "force": True}
            [of_admin] = guarded.ok("mine", listing)["schedules"]
            assert of_admin["task"] == task


class TestADynamicTable:
    """It shows the rows of its sources to all of its readers, without their policies."""

    QUERY = "SELECT id, name FROM orders"

    @pytest.mark.parametrize(
        "asked",
        [
            {"operation": "CREATE_DYNAMIC_TABLE", "table": "report", "query": QUERY, "target_lag": "1 hour"},
            {"operation": "CREATE_DYNAMIC_TABLE", "sql": f"CREATE DYNAMIC TABLE r TARGET_LAG = '1 hour' AS {QUERY}"},
            {"operation": "EXPLAIN_DYNAMIC_TABLE", "query": QUERY},
        ],
    )
    def test_is_created_only_by_an_administrator_of_its_sources(self, asked: dict[str, Any], guarded: Guarded) -> None:
        for key in ("writer", "shop"):
            refused = guarded.refused(key, {"tenant_id": MINE, "namespace": "shop", **asked})
            assert (refused["status"], refused["code"]) == (403, "FORBIDDEN")
            assert "policy" in refused["message"]
            assert "do not inherit" in refused["message"]

    def test_is_refreshed_only_with_the_rights_of_one(self, guarded: Guarded) -> None:
        passes = guarded.app.parts[Passes]
        made = Declared(guarded.app, MINE).dynamic("shop.published", "shop.orders")
        definition = guarded.app.parts[Definitions].of(made).definition
        for role in ("writer", "admin"):
            owner = Principal("jwt:maker", (Grant.parse(f"{role}:{MINE}/shop", "roles"),), "jwt").dumps()
            if role == "admin":
                passes.creators.check(replace(definition, owner=owner))
            else:
                with pytest.raises(Forbidden, match="protected by a policy"):
                    passes.creators.check(replace(definition, owner=owner))

    def test_says_which_of_its_sources_have_a_policy_and_not_why_it_failed(self, guarded: Guarded) -> None:
        made = Declared(guarded.app, MINE).dynamic("shop.told", "shop.orders")
        guarded.app.parts[Definitions].records.failed(
            made.uuid, "INVALID_QUERY: for the row secret", None, state="failed"
        )
        described = {"operation": "DESCRIBE_DYNAMIC_TABLE", **ADDRESS, "table": "told"}
        of_reader = guarded.ok("reader", described)["dynamic_table"]
        assert [source["has_policy"] for source in of_reader["sources"]] == [True]
        assert "query" not in of_reader
        assert "secret" not in str(of_reader)
        of_admin = guarded.ok("mine", described)["dynamic_table"]
        assert of_admin["query"]
        assert "secret" in of_admin["reason"]
        set_again = guarded.ok("mine", set_policy(RULES))
        assert {one["table"] for one in set_again["dynamic_tables"]} >= {"told"}

    def test_does_not_show_its_query_once_a_protected_source_has_another_name(self, guarded: Guarded) -> None:
        catalog, place = guarded.app.parts[Catalog], {**ADDRESS, "table": "leaving"}
        guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
        guarded.ok("mine", {**set_policy(RULES), **place})
        Declared(guarded.app, MINE).dynamic("shop.of_leaving", "shop.leaving")
        # As another program renames it, of which the definition does not know.
        catalog.rename(catalog.load(TableName(MINE, "shop", "leaving")), TableName(MINE, "shop", "left"))
        described = {"operation": "DESCRIBE_DYNAMIC_TABLE", **ADDRESS, "table": "of_leaving"}
        assert "query" not in guarded.ok("reader", described)["dynamic_table"]
        assert guarded.ok("mine", described)["dynamic_table"]["query"]


class TestThoseWhoSeeAll:
    """No policy binds administrators and Firn itself, nor a role whose rule is empty."""

    def test_are_administrators_and_firn_itself(self, guarded: Guarded) -> None:
        policies = guarded.app.parts[Policies]
        ours = Principal("firn", (Grant("writer", MINE, "shop"),), LOCAL.credential)
        for principal in (Principal("a", (Grant("admin", MINE, "shop"),)), ours):
            policies.check_whole(principal, NAME)
        assert policies.is_bound(Principal("a", (Grant("admin", MINE, "lab"), Grant("reader", MINE))), NAME)
        assert policies.is_bound(Principal("a", (Grant("writer", MINE),)), NAME)

    def test_are_roles_with_an_empty_rule(self, guarded: Guarded) -> None:
        place = {**ADDRESS, "table": "open"}
        guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
        guarded.ok("mine", {**set_policy({**RULES, "writer": {}}), **place})
        guarded.ok("writer", {"operation": "LIST_PARTITIONS", **place})
        assert guarded.refused("reader", {"operation": "LIST_PARTITIONS", **place})["code"] == "FORBIDDEN"


def test_a_change_sees_a_policy_that_this_process_set_at_once(guarded: Guarded) -> None:
    place, policies = {**ADDRESS, "table": "fresh"}, guarded.app.parts[Policies]
    guarded.ok("mine", {"operation": "CREATE_TABLE", **place, "schema": {"fields": FIELDS}})
    name = TableName(MINE, "shop", "fresh")
    policies.check_whole(Principal("w", (Grant("writer", MINE),)), name)
    assert policies.had_none(name)
    guarded.ok("mine", {**set_policy(RULES), **place})
    write = {"operation": "WRITE", **place, "records": [{"id": 1}]}
    assert guarded.refused("writer", write)["code"] == "FORBIDDEN"


def test_what_was_read_of_a_table_without_a_policy_counts_for_a_second() -> None:
    class Clock:
        now = 0.0

    policies = Policies(Any, lambda: Clock.now)  # type: ignore[arg-type]  # no table is loaded
    policies._without[NAME] = 1.0
    assert policies.had_none(NAME)
    Clock.now = 1.0
    assert not policies.had_none(NAME)
