"""Hostile SQL and expressions in everything that changes tables: each is refused or ends alone, and nothing is left."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.engine.session import jvm
from service.errors import FirnError, InvalidRequest
from service.model.expressions import parse_expression
from service.model.schema.columns import columns_of
from service.model.schema.definition import parse_schema
from tests.harness import Firn
from tests.integration.test_sql_corpus import HOSTILE, LEAKS, MECHANISMS
from tests.support.expression_corpus import FIELDS, HostileExpression, expressions, row
from tests.support.ingesting import IngestedTable
from tests.support.sql_corpus import SqlText, make_tables
from tests.support.tables import ServedTable

CORPUS = expressions()
TIMEOUT_MS = 6_000
_PAGE = re.compile(r"https://spark\.apache\.org/docs/\S+")
# Long enough that what grows with it is felt, and 300 rows of it fit into a request.
LENGTH = 20_000


@dataclass(frozen=True)
class Target:
    """The tables that hostile texts try to harm, and the process that writes."""

    firn: Firn
    tenant: str

    @property
    def table(self) -> ServedTable:
        return ServedTable(self.firn, self.tenant, "e")

    def problem(self, request: dict[str, Any]) -> str | None:
        """What is wrong with the response, if anything: it must be a success or a 4xx with a reason, in time."""
        started = time.monotonic()
        request = {"tenant_id": self.tenant, "timeout_ms": TIMEOUT_MS, **request}
        response = self.firn.send(json.dumps(request))  # some have half of a surrogate pair
        body, seconds = self.firn.parsed(response), time.monotonic() - started
        if seconds > 10 * request["timeout_ms"] / 1000:
            return f"it took {seconds:.1f} s"
        if body["success"]:
            return None
        error = body["error"]
        if response.status_code >= 500 and error["code"] != "DEADLINE_EXCEEDED":
            return f"{response.status_code} {error['code']}: {error['message'][:200]}"
        # What the sender itself has sent, and Spark's page on patterns, may be in it.
        shown = _PAGE.sub("", error["message"].replace(str(request.get("source")), ""))
        if LEAKS.search(shown) or len(error["message"]) > 1_500:
            return f"it shows too much: {error['message'][:300]}"
        return None

    def write(self) -> None:
        self.table.write(row(10_000, 1))


@pytest.fixture(scope="module")
def target(firn: Firn) -> Iterator[Target]:
    """The process that writes is the same before and after all tests, and all of its sessions are free again."""
    made = Target(firn, "tenant-hostile-changes")
    make_tables(firn, made.tenant, 100_000)
    table = ServedTable(firn, made.tenant, "e", schema={"fields": FIELDS})
    for start in range(0, 300, 100):
        table.write(*(row(i, LENGTH) for i in range(start, start + 100)))
    process = jvm.process()
    assert process is not None
    yield made
    assert jvm.process() is process
    assert process.poll() is None


def changes(one: HostileExpression, *, every_kind: bool) -> dict[str, dict[str, Any]]:
    """The requests that compute an expression, by name."""
    value, address = {"expression": one.text}, {"table": "e"}
    every, few = {"id": {"gte": 0}}, {"id": {"eq": 3}}
    condition = {"expression": f"length({one.text}) = -1"}
    first = {
        "update": {"operation": "UPDATE", **address, "updates": {"o": value}, "filter": every},
        "filter": {"operation": "DELETE", **address, "filter": condition},
    }
    others = {
        "update of one row": {"operation": "UPDATE", **address, "updates": {"o": value}, "filter": few},
        "preview": {"operation": "UPDATE", **address, "updates": {"o": value}, "filter": every, "dry_run": True},
        "query": {"operation": "QUERY", **address, "filter": condition, "limit": 5},
        "derived column": {"operation": "REPARTITION", **address, "transform": {"c": value}, "dry_run": True},
    }
    return first | others if every_kind else first


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", sorted({one.mechanism for one in CORPUS}))
def test_hostile_expressions_fail_alone(target: Target, mechanism: str) -> None:
    wrong = []
    for number, one in enumerate(one for one in CORPUS if one.mechanism == mechanism):
        for name, request in changes(one, every_kind=number < 3).items():
            wrong.append((name, str(one), target.problem(request)))
        target.write()
    assert [found for found in wrong if found[2]] == []
    assert target.table.ids(filter={"id": {"lt": 300}}, limit=1) == [0]


# What a dataset file has of the columns.
DATASET = {"id": "BIGINT", "n": "INTEGER", "s": "VARCHAR", "txt": "VARCHAR", "d": "DATE", "ts": "TIMESTAMP"}
DATASET |= {"x": "DOUBLE", "dc": "DECIMAL(10,2)", "b": "BOOLEAN", "num": "VARCHAR"}


def of_dataset(one: HostileExpression) -> bool:
    """Whether an expression reads only these columns."""
    fields = {name: FIELDS[name] for name in DATASET}
    try:
        parse_expression(one.text, columns_of(parse_schema({"fields": fields})), "columns", InvalidRequest)
    except FirnError:
        return False
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", sorted({one.mechanism for one in CORPUS}))
def test_hostile_expressions_of_datasets_reject_rows(target: Target, tmp_path: Path, mechanism: str) -> None:
    chosen = [one.text for one in CORPUS if one.mechanism == mechanism and of_dataset(one)]
    columns: list[dict[str, Any]] = [{"name": name, "type": kind} for name, kind in DATASET.items()]
    columns += [{"name": f"e{i}", "type": "VARCHAR", "expression": text} for i, text in enumerate(chosen)]
    name = f"i{sorted({one.mechanism for one in CORPUS}).index(mechanism)}"
    table = IngestedTable(target.firn, target.tenant, tmp_path, name, {"columns": columns})
    lines = (",".join(str(row(i, LENGTH)[column]) for column in DATASET) for i in range(100))
    source = table.file(f"{name}.csv", "\n".join([",".join(DATASET), *lines]))
    request = {"operation": "INGEST", "table": name, "source": str(source), "date": "2024-01-15"}
    assert target.problem({**request, "timeout_ms": 10 * TIMEOUT_MS}) is None
    target.write()


def declaration(one: SqlText, name: str) -> dict[str, Any]:
    fields = {"table": name, "query": one.text, "target_lag": "1 hour", "scheduler": "DISABLED"}
    return {"operation": "CREATE_DYNAMIC_TABLE", **fields}


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_hostile_queries_make_no_dynamic_table(target: Target, mechanism: str) -> None:
    wrong = []
    for number, one in enumerate(one for one in HOSTILE if one.mechanism == mechanism):
        name = f"d{number}_{MECHANISMS.index(mechanism)}"
        wrong.append((str(one), target.problem(declaration(one, name))))
        target.write()
        listed = set(target.firn.ok({"operation": "LIST_TABLES", "tenant_id": target.tenant})["tables"])
        built = name in listed and ServedTable(target.firn, target.tenant, name).description.get("current_snapshot_id")
        if name in listed:
            target.firn.ok({"operation": "DROP_DYNAMIC_TABLE", "tenant_id": target.tenant, "table": name})
        if name in listed and not built:
            wrong.append((str(one), "a table without rows is left"))
    assert [found for found in wrong if found[1]] == []


# Texts much longer than is assumed: no bound foresees what they take together.
UNFORESEEN = (
    "SELECT k, repeat(v, 900) AS v FROM texts",
    "SELECT a.k, max(sha2(concat(a.v, b.v), 512)) AS m FROM texts a JOIN texts b ON a.k = b.k "
    "JOIN texts c ON c.k = a.k GROUP BY a.k",
)


@pytest.mark.thorough
@pytest.mark.parametrize("query", UNFORESEEN)
def test_what_no_bound_foresees_ends_alone(target: Target, query: str) -> None:
    fields = {"id": {"type": "long"}, "k": {"type": "long"}, "v": {"type": "string"}}
    number = UNFORESEEN.index(query)
    name = f"texts{number}"
    texts = ServedTable(target.firn, target.tenant, name, schema={"fields": fields})
    texts.write(*({"id": i, "k": 0, "v": f"{i:05}" * 2000} for i in range(320)))
    asked = declaration(SqlText(query.replace("texts", name)), f"unforeseen{number}")
    assert target.problem({**asked, "timeout_ms": 4 * TIMEOUT_MS}) is None
    target.write()
