"""Policies on a running Spark: nobody sees, by any way of asking, what a policy hides."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.model import wire
from service.model.identity.principal import Claim, Grant, Principal
from tests.harness import Firn
from tests.integration.test_identities import Guarded

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
    {"projection": ["id"], "limit": 1, "offset": 1},
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


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
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
