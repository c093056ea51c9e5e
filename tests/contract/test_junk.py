"""Whatever is put in place of a field, the answer is a success or a refusal, never a defect."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from handlers import discover
from service.operations.operation import Operation
from tests.contract import rich
from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.refusals import check_message

OPERATIONS = discover()
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 2**31, 2**63, -(2**63) - 1, 10**40, 10**400),
    *("", " ", "x", "a.b", "a`b", "a'b", "%", "\\", "(", "*", "\x00", "\n", "é", "😀\u202e", "x" * 5000),
    *("NaN", "null", "true", "1e5", "2024-01-31", "2024-02-30T25:00:00Z", "${env:HOME}", "'; DROP TABLE t; --"),
    *([], {}, [[]], [None], [{}], [1, "a", None], {"": None}, {"a": {"a": 1}}, {"field": "id"}, {"gt": None}),
    *({"field": "id", "operator": "eq", "value": 1}, [{"field": 5}], {"and": [{"or": []}]}, {"not": {}}),
)
ADDED = "something else"
FEW = 6


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a request where something stands."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def mutated(request: dict[str, Any], luck: random.Random) -> dict[str, Any]:
    """The request with one place gone, doubled, added to, or replaced by junk."""
    copy: dict[str, Any] = json.loads(json.dumps(request))
    found = [p for p in places(copy) if p not in (("operation",), ("tenant_id",))]
    if not found:  # it says nothing else
        return {**copy, ADDED: luck.choice(JUNK)}
    path = luck.choice(found)
    parent: Any = copy
    for key in path[:-1]:
        parent = parent[key]
    match luck.choice(["replace"] * 6 + ["remove", "double", "add"]):
        case "replace":
            parent[path[-1]] = luck.choice(JUNK)
        case "remove":
            del parent[path[-1]]
        case "double" if isinstance(parent, list):
            parent.append(parent[path[-1]])
        case _:
            (parent if isinstance(parent, dict) else copy)[ADDED] = luck.choice(JUNK)
    return copy


def replaced(request: dict[str, Any], tenant: str) -> dict[str, Any]:
    return {**request, "tenant_id": tenant}


@pytest.fixture(scope="module")
def unchanged(firn: Firn) -> str:
    """A tenant with what requests presuppose that change nothing."""
    for given in rich.GIVEN:
        firn.ok(replaced(given, "tenant-junk"))
    return "tenant-junk"


@pytest.mark.parametrize("count", thorough_after(1, [FEW, 18]))
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_no_junk_anywhere_in_a_request_makes_a_defect(
    operation: Operation, count: int, firn: Firn, tenant: str, unchanged: str
) -> None:
    luck = random.Random(operation.name)
    # The first requests use every field, so that a few rounds need no others, and not what those presuppose.
    examples = operation.examples if count > FEW else ()
    requests = [*rich.REQUESTS[operation.name], *(example.request for example in examples)]
    if examples or operation.changes:
        for given in (*rich.GIVEN, *(given for example in examples for given in example.given)):
            firn.post(replaced(given, tenant))
    else:
        tenant = unchanged
    for i in range(count):
        request = replaced(mutated(requests[i % len(requests)], luck), tenant)
        response = firn.send(json.dumps(request))
        body = firn.parsed(response)
        assert response.status_code in (200, 202, 400, 404, 409), (json.dumps(request)[:2000], body)
        if response.status_code < 300:
            assert body["success"] is True
            continue
        assert set(body) == {"success", "error", "metadata"}
        assert {"code", "message", "retryable"} <= set(body["error"])
        assert set(body["error"]) <= {"code", "message", "field", "suggestion", "retryable", "details"}
        assert body["success"] is body["error"]["retryable"] is False, (json.dumps(request)[:2000], body)
        check_message(body["error"]["message"])
