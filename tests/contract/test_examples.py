"""Every operation's examples, through both front doors: what is documented is what is answered."""

from pathlib import Path
from typing import Any

import pytest

from service.app import discover
from service.operation import Example, Operation
from tests.contract.doors import DOORS
from tests.contract.openapi import ANY, problems
from tests.harness import Firn

APPROVED = Path(__file__).parent / "approved_operations.txt"
OPERATIONS = discover()
FORMS = [name for name in DOORS if name != "http"]
ALL = [(o, e) for o in OPERATIONS for e in o.examples]
# Every example comes by HTTP and by an event; the forms of events take turns.
CASES = [
    pytest.param(operation, example, door, id=f"{operation.name}: {example.title} ({door})")
    for i, (operation, example) in enumerate(ALL)
    for door in ("http", FORMS[i % len(FORMS)])
]


def test_the_operations_are_the_approved_ones() -> None:
    assert sorted(o.name for o in OPERATIONS) == APPROVED.read_text().split()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_every_operation_has_an_example(operation: Operation) -> None:
    assert operation.examples
    assert all(e.request["operation"] == operation.name and e.answer["success"] is True for e in operation.examples)


@pytest.fixture(scope="module")
def published(firn: Firn) -> dict[str, Any]:
    """The OpenAPI document as it is served."""
    return firn.parsed(firn.client.get("/openapi.json"))


@pytest.mark.parametrize(("operation", "example", "door"), CASES)
def test_an_example_is_answered_as_approved(
    operation: Operation, example: Example, door: str, firn: Firn, tenant: str, published: dict[str, Any]
) -> None:
    answers = [firn.ok({**request, "tenant_id": tenant}) for request in example.given]
    status, answer = DOORS[door](firn, {**example.after(answers), "tenant_id": tenant})
    assert status == 200, answer
    assert differences(example.answer, answer) == []
    post = published["paths"]["/database"]["post"]
    schemas = post["responses"]["200"]["content"]["application/json"]["schema"]
    own = schemas["oneOf"][sorted(o.name for o in OPERATIONS).index(operation.name)]
    assert problems(answer, own, published) == []
    assert problems(answer, schemas, published) == []


@pytest.mark.parametrize("door", FORMS)
def test_every_form_of_event_gives_the_answer_that_http_gives(door: str, firn: Firn, tenant: str) -> None:
    table = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **table, "schema": {"fields": {"name": {"type": "string"}}}})
    firn.ok({"operation": "WRITE", **table, "records": [{"name": "é😀\u202e\n"}]})
    for request in (
        {"operation": "query", **table, "filter": {"name": {"eq": "é😀\u202e\n"}}},
        {"operation": "QUERY", **table, "table": "tt"},
    ):
        status, answer = DOORS[door](firn, request)
        expected_status, expected = DOORS["http"](firn, request)
        for said in (answer, expected):
            said["metadata"] = {k: v for k, v in said["metadata"].items() if k == "row_count"}
        assert (status, answer) == (expected_status, expected)


@pytest.mark.parametrize(
    ("approved", "got"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {}),
        ({}, {"a": None}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": {"b": ANY}}, {"a": {}}),
    ],
)
def test_answers_that_differ_are_told_apart(approved: Any, got: Any) -> None:
    assert differences(approved, got)
    assert not differences(got, got)


def differences(approved: Any, got: Any, path: str = "$") -> list[str]:
    """Where an answer is not the approved one; `"<any>"` stands for any value that is there."""
    if approved == ANY:
        return []
    if isinstance(approved, dict) and isinstance(got, dict):
        unlike = [f"{path}.{key} is on one side only" for key in sorted(approved.keys() ^ got.keys())]
        for key in approved.keys() & got.keys():
            unlike += differences(approved[key], got[key], f"{path}.{key}")
        return unlike
    if isinstance(approved, list) and isinstance(got, list) and len(approved) == len(got):
        return [
            d for i, (a, g) in enumerate(zip(approved, got, strict=True)) for d in differences(a, g, f"{path}[{i}]")
        ]
    if type(approved) is type(got) and approved == got:
        return []
    return [f"{path} is {got!r}, approved is {approved!r}"]
