"""`firn dynamic`: what is asked of the service, and how its answers are shown."""

import io
from pathlib import Path
from typing import Any, cast

import pytest

from service.cli.connection.remote import Connection
from service.cli.main import main
from service.cli.terminal.tree import draw

CHILDREN = {"orders": ["details", "totals"], "customers": ["details"], "details": ["top"], "totals": ["top"], "top": []}


class Answers:
    """Answers each operation as it was told to, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[dict[str, Any]]()

    def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(request)
        return {"success": True, **self.answers.get(request["operation"], {})}

    def job(self, job_id: str) -> dict[str, Any]:
        return {"success": True, "job": {"result": {"success": True, **self.answers["job"]}}}

    def cancel(self, job_id: str) -> dict[str, Any]:
        raise AssertionError("nobody cancelled")

    def close(self) -> None:
        pass


def run(line: list[str], service: Answers, stdin: str = "") -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    typed, connection = io.TextIOWrapper(io.BytesIO(stdin.encode())), cast(Connection, service)
    code = main(line, {"FIRN_TENANT": "acme"}, stdin=typed, stdout=out, stderr=err, connection=connection)
    return code, out.getvalue(), err.getvalue()


def table(name: str, *sources: str, **more: Any) -> dict[str, Any]:
    read = [{"namespace": "default", "table": source} for source in sources]
    return {
        "namespace": "default",
        "table": name,
        "state": "active",
        "target_lag": "5 minutes",
        "sources": read,
        **more,
    }


def test_a_node_with_several_parents_is_drawn_once() -> None:
    assert draw(["customers", "orders"], lambda name: CHILDREN[name], str) == [
        "customers",
        "└─ details",
        "   └─ top",
        "orders",
        "├─ details (see above)",
        "└─ totals",
        "   └─ top",
    ]


def test_a_graph_is_drawn_without_lines_where_they_cannot_be_printed() -> None:
    assert draw(["orders"], lambda name: CHILDREN[name], str, ascii_only=True) == [
        "orders",
        "+- details",
        "|  `- top",
        "`- totals",
        "   `- top",
    ]


def test_the_graph_begins_with_base_tables_and_says_how_each_table_is() -> None:
    tables = [
        table("details", "orders", lag_ms=61_000, last_mode="INCREMENTAL"),
        table("top", "details", state="failed", target_lag="downstream"),
    ]
    service = Answers(LIST_DYNAMIC_TABLES={"dynamic_tables": tables})
    code, out, err = run(["dynamic", "graph"], service)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "default.orders",
        "└─ default.details  [5 minutes; lag 1:01; INCREMENTAL]",
        "   └─ default.top  [downstream; lag -; not refreshed yet, failed]",
    ]


def test_a_table_is_described_without_a_query_that_the_reader_may_not_see() -> None:
    found = table("t", refresh_mode="AUTO", scheduler="ENABLED", schema={"fields": {}}, refreshes=[], dependents=[])
    described = {"dynamic_table": {**found, "failures": 0, "classes": [], "incremental": True}}
    code, out, err = run(["dynamic", "describe", "t"], Answers(DESCRIBE_DYNAMIC_TABLE=described))
    assert (code, err) == (0, "")
    assert "its query names tables that you may not read" in out


def test_a_statement_is_read_from_a_file_and_sent_as_a_job(tmp_path: Path) -> None:
    sql = "CREATE DYNAMIC TABLE t TARGET_LAG = '1 hour' AS SELECT a FROM b"
    (tmp_path / "t.sql").write_text(sql)
    made = {
        **{"namespace": "default", "table": "t", "change": "created", "columns_added": [], "columns_removed": []},
        **{"classes": ["projection"], "records_inserted": 2},
    }
    service = Answers(CREATE_DYNAMIC_TABLE={"job_id": "j"}, job=made)
    code, out, err = run(["dynamic", "create", "-f", str(tmp_path / "t.sql")], service)
    assert (code, err) == (0, "")
    assert out == "✓ Created default.t: 2 rows\n  refreshed incrementally: projection\n"
    [asked] = service.asked
    assert (asked["sql"], asked["async"], asked["tenant_id"]) == (sql, True, "acme")


def test_a_file_that_does_not_exist_is_refused_before_anything_is_sent() -> None:
    service = Answers()
    code, _, err = run(["dynamic", "create", "-f", "nowhere.sql"], service)
    assert (code, service.asked) == (2, [])
    assert "nowhere.sql" in err


def test_explain_takes_a_table_or_a_query() -> None:
    for line in (["dynamic", "explain"], ["dynamic", "explain", "t", "-f", "-"]):
        assert run(line, Answers())[0] == 2
    plan = {"applied": "by keys", "keys": ["a"], "steps": [{"view": "k", "sql": "SELECT 1", "kept": True}]}
    found = {
        "incremental": True,
        "classes": ["aggregate"],
        "sources": [{"namespace": "default", "table": "b", "columns": ["a"]}],
        "incremental_plan": plan,
    }
    service = Answers(EXPLAIN_DYNAMIC_TABLE=found)
    code, out, _ = run(["dynamic", "explain", "-f", "-"], service, "SELECT a FROM b")
    assert code == 0
    assert out.splitlines() == [
        "incremental",
        "  aggregate",
        "  s0: default.b (a)",
        "  applied by keys a",
        "k:",
        "SELECT 1",
    ]
    assert service.asked[0]["query"] == "SELECT a FROM b"


@pytest.mark.parametrize(("repaired", "code"), [(False, 1), (True, 0)])
def test_an_audit_that_finds_other_rows_fails_unless_it_repairs_them(repaired: bool, code: int) -> None:
    found = {
        **{"matches": False, "repaired": repaired, "records_compared": 5, "records_missing": 1},
        **{"records_unexpected": 2, "examples": [{"row": {"a": 1}, "missing": 1}]},
    }
    done = run(["dynamic", "audit", "t", "--sample", "12.5"], service := Answers(AUDIT_DYNAMIC_TABLE=found))
    assert done[0] == code
    assert '  missing, 1: {"a": 1}' in done[1]
    assert service.asked[0]["sample_percent"] == 12.5


def test_a_table_that_others_read_is_not_asked_about_but_refused() -> None:
    described = {"dynamic_table": {"dependents": [{"namespace": "default", "table": "top"}]}}
    service = Answers(DESCRIBE_DYNAMIC_TABLE=described, DROP_DYNAMIC_TABLE={"table_dropped": False})
    run(["dynamic", "drop", "t"], service)
    assert [one["operation"] for one in service.asked] == ["DESCRIBE_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE"]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (["alter", "t", "--lag", "1 hour"], {"target_lag": "1 hour"}),
        (["alter", "t", "--scheduler", "disabled"], {"scheduler": "DISABLED"}),
        (["alter", "t", "--suspend", "--reason", "x"], {"suspend": True, "reason": "x"}),
        (["alter", "t", "--resume"], {"resume": True}),
        (["history", "shop.t", "--state", "failed"], {"namespace": "shop", "table": "t", "state": "failed"}),
        (["history", "-A"], {"scope": "tenant"}),
        (["describe", "t", "--refreshes", "3"], {"table": "t", "refreshes": 3}),
        (["drop", "t", "--cascade", "--yes"], {"table": "t", "cascade": True}),
    ],
)
def test_options_are_fields_of_the_request(line: list[str], fields: dict[str, Any]) -> None:
    refresh = {
        "table_dropped": True,
        "dropped": [],
        "refreshes": [],
        "state": "active",
        "target_lag": "1 hour",
        "dynamic_table": {
            **table("t", refresh_mode="AUTO", scheduler="ENABLED", query="q", refreshes=[], dependents=[]),
            "schema": {"fields": {}},
        },
    }
    operations = ("ALTER", "DESCRIBE", "DROP")
    service = Answers(**{f"{name}_DYNAMIC_TABLE": refresh for name in operations}, REFRESH_HISTORY=refresh)
    code, _, err = run(["dynamic", *line], service)
    assert (code, err) == (0, "")
    asked = service.asked[-1]
    assert {name: asked.get(name) for name in fields} == fields
