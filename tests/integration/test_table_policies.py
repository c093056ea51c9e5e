"""Policies on a running Spark: nobody sees, by any way of asking, what a policy hides."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.model import wire
from service.model.identity.principal import Claim, Grant, Principal
from tests.harness import Firn
from tests.integration.test_identities import Guarded
from tests.support.ingesting import HEADER, IngestedTable, row
from tests.support.marks import thorough_after, thorough_except

HIDDEN = ("secret", "eve@us.example", "dan@us.example", "4711")
ROWS = [
    {"id": 1, "region": "EU", "email": "ann@eu.example", "salary": 100, "note": "plain", "day": "2024-01-01"},
    {"id": 2, "region": "EU", "email": "bob@eu.example", "salary": 200, "note": None, "day": "2024-01-02"},
    {"id": 3, "region": "US", "email": "eve@us.example", "salary": 4711, "note": "secret", "day": "2024-01-03"},
    {"id": 4, "region": "US", "email": "dan@us.example", "salary": 5, "note": "secret", "day": "2024-01-04"},
]
FIELDS = {
    "id": {"type": "long", "required": True},
    **{name: {"type": "string"} for name in ("region", "email", "note")},
    "salary": {"type": "long"},
    "day": {"type": "date"},
}
RULES: dict[str, Any] = {
    "reader": {
        "rows": {"region": {"principal": "claims.region"}},
        "columns": {"email": "hash", "salary": "null", "note": "hidden"},
    },
    "payroll": {"rows": {"region": {"principal": "claims.region"}, "id": {"lt": 2}}},
    "writer": {},
}


class Tokens:
    """Tokens that say whom they are about."""

    def __init__(self) -> None:
        self.known: dict[str, Principal] = {}

    def needs_reading(self, token: str) -> bool:
        return False

    def principal_of(self, token: str) -> Principal:
        return self.known[token]


TOKENS = Tokens()


@pytest.fixture(scope="module")
def guarded(firn: Firn) -> Iterator[Guarded]:
    made = Guarded(firn, TOKENS)
    yield made
    made.stop()


class Staff:
    """A table with a policy, and those who ask about it."""

    def __init__(self, guarded: Guarded, firn: Firn, tenant: str) -> None:
        self.guarded, self.firn, self.tenant = guarded, firn, tenant
        self.address = {"tenant_id": tenant, "namespace": "hr", "table": "staff"}
        self.admin = self.sender("admin", f"admin:{tenant}")
        self.ann = self.sender("ann", f"reader:{tenant}", region="EU")
        self.nobody = self.sender("nobody", f"reader:{tenant}")
        self.payroll = self.sender("pay", f"reader:{tenant}", others=("payroll",), region="EU")
        self.writer = self.sender("writer", f"writer:{tenant}")
        firn.ok({"operation": "CREATE_TABLE", **self.address, "schema": {"fields": FIELDS}})
        self.before = firn.ok({"operation": "WRITE", **self.address, "records": ROWS})["metadata"]["snapshot_id"]

    def sender(self, name: str, *roles: str, others: tuple[str, ...] = (), **claims: Claim) -> dict[str, str]:
        """The header of somebody with these roles and claims."""
        grants = tuple(Grant.parse(role, "roles") for role in roles)
        token = f"{self.tenant}-{name}"
        TOKENS.known[token] = Principal(f"jwt:{name}", grants, "jwt", claims, others)
        return {"Authorization": f"Bearer {token}"}

    def ask(self, who: dict[str, str], operation: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        response = self.guarded.ask(who, {"operation": operation, **self.address, **fields})
        return response.status_code, wire.parse(response.content)

    def ok(self, who: dict[str, str], operation: str, **fields: Any) -> dict[str, Any]:
        status, body = self.ask(who, operation, **fields)
        assert status < 300, body
        return body

    def rows(self, who: dict[str, str], **fields: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ok(who, "QUERY", **fields)["data"]
        return found

    def refused(self, who: dict[str, str], operation: str, **fields: Any) -> dict[str, Any]:
        status, body = self.ask(who, operation, **fields)
        assert status >= 400, body
        assert not any(value in str(body) for value in HIDDEN)
        error: dict[str, Any] = body["error"]
        return error


@pytest.fixture(scope="module")
def staff(guarded: Guarded, firn: Firn) -> Staff:
    made = Staff(guarded, firn, "policies")
    made.ok(made.admin, "SET_POLICY", rules=RULES)
    return made


def test_each_role_adds_the_rows_and_values_that_it_shows(staff: Staff) -> None:
    every = staff.rows(staff.admin, sort=["id"])
    assert every == staff.rows(staff.writer, sort=["id"])
    assert len(every) == 4
    ann = staff.rows(staff.ann, sort=["id"])
    assert [row["id"] for row in ann] == [1, 2]
    assert ann[0].keys() == {"id", "region", "email", "salary", "day"}
    assert all(row["salary"] is None and len(row["email"]) == 64 for row in ann)
    assert staff.rows(staff.nobody) == []
    # `payroll` shows all of the first row, and `reader` what it shows of the second.
    first, second = staff.rows(staff.payroll, sort=["id"])
    assert first == every[0]
    assert second == {**ann[1], "note": None}


QUESTIONS: list[dict[str, Any]] = [
    {"aggregations": [{"op": "count"}, {"op": "min", "field": "id"}, {"op": "max", "field": "day"}]},
    {"aggregations": [{"op": "max", "field": "salary"}, {"op": "count_distinct", "field": "email"}]},
    {"filter": {"region": "US"}},
    {"filter": {"salary": 4711}},
    {"filter": {"email": "ann@eu.example"}},
    {"filter": {"expression": "1 / (id - 3) > 0"}},
    {"filter": {"expression": "CAST(region AS int) > 0 OR true"}},
    {"sort": ["salary", "id"]},
    {"sort": [{"field": "email"}], "limit": 1},
    {"group_by": ["email", "salary"], "aggregations": [{"op": "count"}]},
    {"distinct": True, "projection": ["region", "salary"]},
    {"projection": ["id"], "sort": ["id"], "limit": 1, "offset": 1},
    {"projection": ["id"], "join": [{"table": "staff", "alias": "other", "on": "salary"}]},
    {"projection": ["id", "other.id"], "join": [{"table": "staff", "alias": "other", "type": "full", "on": "id"}]},
    {"sql": "SELECT * FROM staff"},
    {"sql": "SELECT count(*) AS n, max(id) AS most, min(day) AS day, max(salary) AS salary FROM staff"},
    {"sql": "SELECT s.* FROM hr.staff s WHERE s.region = 'US'"},
    {"sql": "SELECT id FROM staff WHERE salary = 4711 OR email = 'eve@us.example'"},
    {"sql": "SELECT (SELECT max(id) FROM staff) AS most, (SELECT count(*) FROM hr.staff) AS n"},
    {"sql": "WITH x AS (SELECT * FROM staff) SELECT count(*) AS n FROM x a JOIN x b ON a.region = b.region"},
    {"sql": "SELECT id FROM staff s WHERE EXISTS (SELECT 1 FROM staff o WHERE o.id = s.id + 2)"},
    {"sql": "SELECT id FROM staff WHERE id NOT IN (SELECT id - 2 FROM staff)"},
    {"sql": "SELECT id FROM staff UNION ALL SELECT id FROM hr.staff"},
    {"sql": "SELECT id, lead(id) OVER (ORDER BY id) AS next FROM staff"},
    {"sql": "SELECT region, count(*) AS n FROM staff GROUP BY ROLLUP (region)"},
    {"sql": "SELECT id FROM staff WHERE 1 / (id - 3) < 5"},
    {"sql": "SELECT id FROM staff WHERE element_at(array(1, 2), CAST(id AS int)) > 0"},
    {"sql": "SELECT id FROM staff WHERE CAST(region AS date) IS NULL OR region = 'EU'"},
    {"sql": "SELECT a.id FROM staff a JOIN staff b ON 10 / (b.id - 4) < 100 AND a.id = b.id"},
    {"sql": "SELECT id, 1 / (id - 4) AS x FROM staff ORDER BY x LIMIT 1"},
    {"sql": "SELECT sum(1 / (id - 3)) AS x FROM staff HAVING x < 100"},
]


ALWAYS_ASKED = [one for one in QUESTIONS if str(one.get("sql", one)).find("count") >= 0][:1] + [
    one for one in QUESTIONS if "(id - 3) < 5" in str(one) or "JOIN staff b ON" in str(one) or "EXISTS" in str(one)
]


@pytest.mark.parametrize("question", thorough_except(ALWAYS_ASKED, QUESTIONS), ids=str)
def test_a_question_has_the_answer_that_the_visible_rows_alone_have(
    question: dict[str, Any], staff: Staff, firn: Firn
) -> None:
    """The same question to a table that has nothing but the visible rows."""
    copy = {**staff.address, "namespace": "copy"}
    if not firn.post({"operation": "DESCRIBE_TABLE", **copy})["success"]:
        visible = staff.rows(staff.ann)
        fields = {name: kind for name, kind in FIELDS.items() if name != "note"}
        firn.ok({"operation": "CREATE_TABLE", **copy, "schema": {"fields": fields}})
        firn.ok({"operation": "WRITE", **copy, "records": visible})
    of_copy = {**question, **({"sql": question["sql"].replace("hr.", "copy.")} if "sql" in question else {})}
    status, body = staff.ask(staff.ann, "QUERY", **question)
    expected = firn.send({"operation": "QUERY", **copy, **of_copy})
    assert status == expected.status_code, body
    if status == 200:
        key = str
        assert sorted(body["data"], key=key) == sorted(wire.parse(expected.content)["data"], key=key)
    else:
        assert not any(value in str(body) for value in HIDDEN)


# Conditions that Iceberg evaluates, that Spark evaluates before or after those of the sender, and one of every row.
FILTERS: list[Any] = [
    {"region": "EU"},
    {"region": {"ilike": "eu"}},
    {"region": {"contains": "E"}},
    {"or": [{"region": {"ilike": "e%"}}, {"id": {"lt": 2}}]},
    {"not": {"region": {"in": ["US", None]}}},
    {"day": {"lt": "2024-01-03"}},
]
FAILING = (
    "SELECT id FROM staff WHERE 1 / (id - 3) < 5",
    "SELECT id FROM staff WHERE id > 0 AND 1 / (id - 4) < 5 AND region = 'EU'",
    "SELECT id FROM staff WHERE element_at(array(1, 2), CAST(id AS int)) > 0",
    "SELECT a.id FROM staff a JOIN staff b ON 10 / (b.id - 4) < 100 AND a.id = b.id AND a.region = b.region",
    "SELECT id FROM (SELECT id, region, 1 / (id - 3) AS x FROM staff) WHERE region = 'EU' AND x < 5",
    "SELECT max(1 / (id - 4)) AS x FROM staff WHERE day < DATE'2030-01-01'",
    "SELECT id FROM staff s WHERE EXISTS (SELECT 1 FROM staff o WHERE 1 / (o.id - 3) < s.id)",
)


def failed(staff: Staff, who: dict[str, str]) -> list[str]:
    return [sql for sql in FAILING if staff.ask(who, "QUERY", sql=sql)[0] != 200]


@pytest.mark.thorough
def test_no_expression_is_computed_for_a_hidden_row_whatever_the_filter_of_the_policy_is(
    guarded: Guarded, firn: Firn, monkeypatch: pytest.MonkeyPatch
) -> None:
    staff = Staff(guarded, firn, "policies-first")
    leaks = set()
    for rows in FILTERS:
        staff.ok(staff.admin, "SET_POLICY", rules={"reader": {"rows": rows}})
        assert failed(staff, staff.nobody) == [], rows
        with monkeypatch.context() as without:
            without.setattr("service.engine.sql.policies.rows._BARRIER", "TRUE")
            leaks |= set(failed(staff, staff.nobody))
    # The barrier is what keeps Spark from it.
    assert leaks


@pytest.mark.thorough
def test_copies_of_a_table_have_its_policy_and_dynamic_tables_only_their_own(guarded: Guarded, firn: Firn) -> None:
    staff = Staff(guarded, firn, "policies-copies")
    staff.ok(staff.admin, "SET_POLICY", rules=RULES)
    layout = {"partitions": [{"field": "region"}]}
    repartition = {"operation": "REPARTITION", **staff.address, "partition": layout, "target_table": "copy"}
    firn.ok({**repartition, "delete_source": False})
    assert [row["id"] for row in staff.rows(staff.ann, table="copy", sort=["id"])] == [1, 2]
    query = {"table": "report", "query": "SELECT id, note FROM staff", "target_lag": "1 hour"}
    assert staff.refused(staff.writer, "CREATE_DYNAMIC_TABLE", **query)["code"] == "FORBIDDEN"
    staff.ok(staff.admin, "CREATE_DYNAMIC_TABLE", **query)
    assert len(staff.rows(staff.ann, table="report")) == 4
    staff.ok(staff.admin, "SET_POLICY", table="report", rules={"reader": {"rows": {"id": 1}}})
    firn.ok({"operation": "WRITE", **staff.address, "records": [{"id": 7, "region": "EU"}]})
    staff.ok(staff.admin, "REFRESH_DYNAMIC_TABLE", table="report")
    assert [row["id"] for row in staff.rows(staff.ann, table="report")] == [1]


@pytest.mark.thorough
def test_a_lateral_subquery_says_nothing_of_hidden_rows(staff: Staff) -> None:
    sql = "SELECT s.id, x.n FROM staff s, LATERAL (SELECT count(*) AS n FROM staff o WHERE o.id >= s.id) x"
    status, body = staff.ask(staff.ann, "QUERY", sql=sql)
    if status == 200:
        assert sorted((row["id"], row["n"]) for row in body["data"]) == [(1, 2), (2, 1)]
    else:
        assert (status, body["error"]["code"]) == (400, "INVALID_QUERY")


QUESTION: dict[str, Any] = {"sql": "SELECT id, email FROM staff"}


@pytest.mark.parametrize(
    "question", thorough_after(1, [{}, QUESTION, {"sort": ["region"]}, {"distinct": True}]), ids=str
)
def test_pages_are_those_of_who_asks_also_with_the_cursor_of_another(question: dict[str, Any], staff: Staff) -> None:
    def pages(who: dict[str, str], cursor: str | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(10):
            asked = {**question, "limit": 1, **({"cursor": cursor} if cursor else {})}
            body = staff.ok(who, "QUERY", **asked)
            found += body["data"]
            cursor = body.get("next_cursor")
            if cursor is None:
                return found
        raise AssertionError("the pages do not end")

    visible = staff.rows(staff.ann, **question)
    assert sorted(pages(staff.ann), key=str) == sorted(visible, key=str)
    cursor = staff.ok(staff.admin, "QUERY", **question, limit=1)["next_cursor"]
    rest = pages(staff.ann, cursor)
    assert len(rest) == 1
    assert rest[0] in visible


def test_streams_have_the_visible_rows(staff: Staff) -> None:
    request = {"operation": "QUERY", **staff.address, "sort": ["id"]}
    answer = staff.guarded.ask(staff.ann, request, Accept="text/csv")
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    assert lines[0] == "id,region,email,salary,day"
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2"]
    sql = {
        **{name: value for name, value in request.items() if name != "sort"},
        "sql": "SELECT * FROM staff ORDER BY id",
    }
    answer = staff.guarded.ask(staff.ann, sql, Accept="application/vnd.apache.arrow.stream")
    read = pa.ipc.open_stream(answer.content).read_all()
    assert read.column_names == ["id", "region", "email", "salary", "day"]
    assert read.column("id").to_pylist() == [1, 2]
    failing = {**request, "filter": {"expression": "1 / (id - 3) > 0"}}
    assert staff.guarded.ask(staff.ann, failing, Accept="text/csv").status_code == 200


@pytest.mark.parametrize(
    "question",
    thorough_after(
        4,
        [
            {"explain": True},
            {"sql": "SELECT _file FROM staff"},
            {"filter": {"expression": "1 / (id - 1) > 0"}},
            {"filter": {"note": "secret"}},
            {"sql": "SELECT id FROM staff", "explain": True},
            {"projection": ["note"]},
            {"sort": ["note"]},
            {"sql": "SELECT note FROM staff"},
            {"sql": "SELECT _partition FROM staff"},
            {"sql": "SELECT * FROM _firn_1"},
            {"sql": "SELECT * FROM staff.files"},
            {"sql": "SELECT CAST(region AS int) AS x FROM staff"},
        ],
    ),
    ids=str,
)
def test_refusals_name_nothing_that_is_hidden(question: dict[str, Any], staff: Staff) -> None:
    staff.refused(staff.ann, "QUERY", **question)


def test_earlier_states_have_the_policy_of_now_and_columns_are_meant_whatever_they_were_called(
    guarded: Guarded, firn: Firn
) -> None:
    staff = Staff(guarded, firn, "policies-then")
    change = {"operation": "ALTER_TABLE", **staff.address}
    firn.ok({**change, "rename_columns": {"email": "mail", "region": "area"}, "drop_columns": ["note"]})
    firn.ok({**change, "rename_columns": {"area": "region"}, "add_columns": {"office": {"type": "string"}}})
    firn.ok({"operation": "WRITE", **staff.address, "records": [{"id": 5, "region": "EU", "mail": "cy@eu.example"}]})
    rules: dict[str, Any] = {"reader": {"rows": RULES["reader"]["rows"], "columns": {"mail": "null", "salary": "null"}}}
    staff.ok(staff.admin, "SET_POLICY", rules=rules)
    for as_of in ({"as_of": staff.before}, {"as_of": staff.before, "sql": "SELECT * FROM staff"}):
        then = sorted(staff.rows(staff.ann, **as_of), key=str)
        assert [row["id"] for row in then] == [1, 2]
        assert all(row.keys() == {"id", "region", "email", "salary", "day"} for row in then)
        assert all(row["email"] is None for row in then)
    # A filter that needs a column of later.
    staff.ok(staff.admin, "SET_POLICY", rules={"reader": {"rows": {"office": "Bern"}}})
    assert staff.refused(staff.ann, "QUERY", as_of=staff.before)["code"] == "FORBIDDEN"
    staff.refused(staff.ann, "QUERY", as_of=staff.before, sql="SELECT * FROM staff")
    assert staff.rows(staff.ann) == []

    # Neither a rollback nor a rename leaves it behind.
    staff.ok(staff.admin, "SET_POLICY", rules=rules)
    staff.ok(staff.admin, "ROLLBACK", as_of=staff.before)
    described = staff.ok(staff.admin, "DESCRIBE_TABLE")["description"]
    assert described["policy"] == rules
    assert [row["id"] for row in staff.rows(staff.ann, sort=["id"])] == [1, 2]


def test_a_difference_is_that_of_the_visible_rows(guarded: Guarded, firn: Firn) -> None:
    staff = Staff(guarded, firn, "policies-diff")
    staff.ok(staff.admin, "SET_POLICY", rules=RULES)
    changed = [{"id": 1, "salary": 101}, {"id": 3, "salary": 4711, "region": "US"}, {"id": 9, "region": "EU"}]
    firn.ok({"operation": "UPSERT", **staff.address, "key_cols": ["id"], "records": changed})
    whole = staff.ok(staff.admin, "DIFF", from_snapshot=staff.before, key_cols=["id"])
    assert (whole["records_updated"], whole["records_inserted"]) == (1, 1)
    seen = staff.ok(staff.ann, "DIFF", from_snapshot=staff.before, key_cols=["id"])
    # The salary of the first row is masked before and after.
    assert (seen["records_updated"], seen["records_inserted"]) == (0, 1)
    assert seen["changes"] == [
        {"change": "inserted", "after": {"id": 9, "region": "EU", "email": None, "salary": None, "day": None}}
    ]
    staff.refused(staff.ann, "DIFF", from_snapshot=staff.before, key_cols=["note"])
    assert staff.refused(staff.ann, "DIFF", from_snapshot=staff.before, **{"async": True})["code"] == "FORBIDDEN"


ONE, TWO = "00000000-0000-0000-0000-000000000001", "f0000000-0000-0000-0000-000000000002"


def table_of_every_type(staff: Staff) -> dict[str, Any]:
    """The address of a table with two rows."""
    place = {**staff.address, "table": "masks"}
    kinds = ("uuid", "boolean", "double", "decimal(10,2)", "date", "timestamp", "binary")
    fields: dict[str, Any] = {f"c{i}": {"type": kind} for i, kind in enumerate(kinds)}
    fields["c7"] = {"type": "array", "items": "string"}
    texts = {name: {"type": "string"} for name in ("t", "hashed", "short")}
    rows = [
        {"c0": ONE, "c1": True, "c2": 1.5, "c3": "1.50", "c4": "2024-01-01", "c7": ["a", "b"], "t": "a😀çdé"},
        {"c0": TWO, "c1": False, "c2": 2.5, "c3": "2.50", "c4": "2024-01-02", "c7": ["b"], "t": "x"},
    ]
    rows = [{**row, "hashed": row["t"], "short": row["t"]} for row in rows]
    staff.firn.ok({"operation": "CREATE_TABLE", **place, "schema": {"fields": {**fields, **texts}}})
    staff.firn.ok({"operation": "WRITE", **place, "records": rows})
    return place


def test_masks_on_spark_are_those_of_the_model(guarded: Guarded, firn: Firn) -> None:
    staff = Staff(guarded, firn, "policies-masks")
    place = table_of_every_type(staff)
    constants = {"c1": True, "c2": 0.5, "c3": "9.99", "c4": "1999-12-31", "c5": "1999-12-31T00:00:00", "c6": "AA=="}
    columns: dict[str, Any] = {name: {"constant": value} for name, value in constants.items()}
    columns |= {"c0": "null", "c7": "null", "t": {"redact": 2}, "hashed": "hash", "short": "redact"}
    firn.ok({"operation": "SET_POLICY", **place, "rules": {"reader": {"columns": columns}}})
    [first, second] = sorted(staff.rows(staff.ann, table="masks"), key=lambda row: str(row["t"]), reverse=True)
    assert {name: first[name] for name in constants} == {**constants, "c2": 0.5}
    assert (first["c0"], first["c7"], first["t"], first["short"]) == (None, None, "****dé", "****")
    assert (second["t"], second["short"]) == ("****", "****")
    assert first["hashed"] != second["hashed"]
    assert {len(row["hashed"]) for row in (first, second)} == {64}


@pytest.mark.thorough
def test_attributes_are_compared_in_the_type_of_the_column(guarded: Guarded, firn: Firn) -> None:
    staff = Staff(guarded, firn, "policies-attributes")
    place = table_of_every_type(staff)
    for condition, claims in (
        ({"c0": {"principal": "claims.id"}}, {"id": ONE}),
        ({"c2": {"lt": {"principal": "claims.id"}}}, {"id": 2}),
        ({"c3": {"between": [1, {"principal": "claims.id"}]}}, {"id": 2}),
        ({"c4": {"lte": {"principal": "claims.id"}}}, {"id": "2024-01-01"}),
        ({"c1": {"principal": "claims.id"}}, {"id": True}),
        ({"c7": {"array_contains": {"principal": "claims.id"}}}, {"id": "a"}),
        ({"t": {"in": {"principal": "claims.id"}}}, {"id": ["a😀çdé", "' OR 1=1 --"]}),
        ({"not": {"t": {"principal": "claims.id"}}}, {"id": "x"}),
    ):
        firn.ok({"operation": "SET_POLICY", **place, "rules": {"reader": {"rows": condition}}})
        who = staff.sender("who", f"reader:{staff.tenant}", **claims)
        for asked in ({}, {"sql": "SELECT * FROM masks"}):
            assert [row["t"] for row in staff.rows(who, table="masks", **asked)] == ["a😀çdé"], condition


class Editor(Staff):
    """The same table, of which a writer sees what readers see."""

    def __init__(self, guarded: Guarded, firn: Firn, tenant: str) -> None:
        super().__init__(guarded, firn, tenant)
        self.ok(self.admin, "SET_POLICY", rules={"writer": RULES["reader"]})
        self.bob = self.sender("bob", f"writer:{tenant}", region="EU")

    def plan(self, operation: str, **fields: Any) -> dict[str, Any]:
        body = self.ok(self.bob, operation, **fields, dry_run=True)
        assert not any(value in str(body) for value in HIDDEN)
        plan: dict[str, Any] = body["plan"]
        return plan

    def planned(self, operation: str, **fields: Any) -> list[tuple[Any, Any]]:
        """The ids of the sample, before and after."""
        sample = self.plan(operation, **fields)["sample"]
        return sorted((one.get("before", {}).get("id"), one.get("after", {}).get("id")) for one in sample)


@pytest.fixture(scope="module")
def editor(guarded: Guarded, firn: Firn) -> Editor:
    return Editor(guarded, firn, "policies-edits")


# Each with the rows that it would change, of the first two, which are visible. Some fail for a hidden row.
PREVIEWS: list[tuple[str, dict[str, Any], int]] = [
    ("UPDATE", {"all": True, "updates": {"region": {"expression": "CAST(10 / (id - 3) AS string)"}}}, 2),
    ("DELETE", {"filter": {"expression": "1 / (id - 3) < 5"}}, 2),
    ("DELETE", {"filter": {"salary": 4711}}, 0),
    ("DELETE", {"all": True}, 2),
    ("UPDATE", {"filter": {"email": {"contains": "@"}}, "updates": {"day": None}}, 0),
    ("DEDUPLICATE", {"key_cols": ["region"], "order_by": ["id"]}, 1),
    ("DEDUPLICATE", {"key_cols": ["salary"], "order_by": ["id"]}, 1),
    ("WRITE", {"mode": "overwrite", "records": []}, 2),
]


@pytest.mark.parametrize(("operation", "fields", "changed"), thorough_after(1, PREVIEWS))
def test_a_dry_run_is_about_the_visible_rows_and_values(
    operation: str, fields: dict[str, Any], changed: int, editor: Editor
) -> None:
    plan = editor.plan(operation, **fields)
    counts = ("records_updated", "records_deleted", "records_removed")
    assert sum(plan.get(name, 0) for name in counts) == changed
    assert len(plan["sample"]) == changed
    for one in plan["sample"]:
        for side in one.values():
            assert side.keys() == {"id", "region", "email", "salary", "day"}
            assert side["id"] in (1, 2)
            assert side["salary"] is None
            assert len(side["email"]) == 64
    assert editor.refused(editor.bob, operation, **fields)["code"] == "FORBIDDEN"
    if "id - 3" in str(fields):
        assert editor.ask(editor.admin, operation, **fields, dry_run=True)[0] == 400


def test_a_dry_run_of_records_does_not_tell_which_keys_hidden_rows_have(editor: Editor) -> None:
    records = [{"id": 1, "salary": 9}, {"id": 3, "region": "EU"}, {"id": 77, "region": "EU"}]
    plan = editor.plan("UPSERT", key_cols=["id"], records=records)
    assert (plan["records_updated"], plan["records_inserted"]) == (1, 2)
    [hidden, absent] = [one["after"] for one in plan["sample"] if "before" not in one]
    assert {**hidden, "id": 0} == {**absent, "id": 0}
    [changed] = [one for one in plan["sample"] if "before" in one]
    assert (changed["before"]["salary"], changed["after"]["salary"]) == (None, 9)
    for fields in ({"filter": {"note": "secret"}}, {"filter": {"expression": "note = 'secret'"}}):
        status, body = editor.ask(editor.bob, "DELETE", **fields, dry_run=True)
        assert (status, body["error"].get("suggestion")) == (400, None)
    assert len(editor.rows(editor.admin)) == 4


def columns_of(path: str) -> list[tuple[str, str, str]]:
    """The columns of a Parquet file, with their types."""
    schema = pq.ParquetFile(path).schema
    return [(one.name, one.physical_type, str(one.logical_type)) for one in map(schema.column, range(len(schema)))]


def test_exported_files_of_a_bound_sender_have_what_it_sees(guarded: Guarded, firn: Firn, tmp_path: Path) -> None:
    tenant = "policies-exports"
    storage = {"type": "local", "base_path": str(tmp_path / "out"), "format": "parquet"}
    sales = IngestedTable(firn, tenant, tmp_path, storage=storage)
    sales.ingest("2024-01-01", HEADER + row(1) + row(2, quantity=5))
    who = Principal("jwt:../bob", (Grant.parse(f"writer:{tenant}", "roles"),), "jwt")
    TOKENS.known["bob"] = who

    rule = {"rows": {"quantity": {"lt": 2}}, "columns": {"price": "null", "product": "redact"}}
    sales.ok("SET_POLICY", rules={"writer": rule})

    def export(**fields: Any) -> dict[str, Any]:
        request = {"operation": "EXPORT", **sales.address, **fields}
        body = wire.parse(guarded.ask({"Authorization": "Bearer bob"}, request).content)
        assert body["success"], body
        return body

    planned = export(dry_run=True)["plan"]["files"]
    [written] = export()["files"]
    assert [written["path"]] == planned
    assert Path(written["path"]).parent.parent == tmp_path / "out/_firn_senders"
    assert pq.read_table(written["path"]).to_pylist() == [
        {"id": 1, "sold_on": date(2024, 1, 1), "product": "****", "quantity": 1, "price": None}
    ]
    # The table's own file has all, in columns of the same types.
    [own] = sales.ok("EXPORT")["files"]
    assert own["records"] == 2
    assert columns_of(written["path"]) == columns_of(own["path"])


@pytest.mark.thorough
def test_no_change_of_rows_layout_or_name_brings_back_what_was_before_the_policy(guarded: Guarded, firn: Firn) -> None:
    staff = Staff(guarded, firn, "policies-kept")
    firn.ok({"operation": "DELETE", **staff.address, "filter": {"id": 4}, "create_backup": True})
    [backup] = staff.ok(staff.admin, "LIST_BACKUPS")["backups"]
    changed = firn.ok({"operation": "UPDATE", **staff.address, "filter": {"id": 1}, "updates": {"salary": 1}})
    staff.ok(staff.admin, "SET_POLICY", rules=RULES)
    for operation, fields in (
        ("UNDO", {"request_id": changed["metadata"]["request_id"]}),
        ("RESTORE_BACKUP", {"name": backup["name"]}),
        ("ROLLBACK", {"as_of": staff.before}),
        ("REPARTITION", {"partition": {"partitions": [{"field": "region"}]}}),
        ("COMPACT", {"force": True}),
        ("ALTER_TABLE", {"add_columns": {"more": {"type": "string"}}}),
        ("WRITE", {"mode": "overwrite", "records": ROWS}),
        ("DROP_TABLE", {}),
        ("RESTORE_TABLE", {}),
        ("RENAME_TABLE", {"new_name": "renamed"}),
    ):
        staff.ok(staff.admin, operation, **fields)
        place = {"table": "renamed"} if operation == "RENAME_TABLE" else {}
        if operation != "DROP_TABLE":
            assert staff.ok(staff.admin, "DESCRIBE_TABLE", **place)["description"]["policy"] == RULES, operation
            seen = staff.rows(staff.ann, sort=["id"], **place)
            assert [(row["id"], row["salary"]) for row in seen] == [(1, None), (2, None)], operation
