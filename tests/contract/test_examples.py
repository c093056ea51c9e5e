"""Every operation's examples: what is documented is what the service responds, by HTTP and as an event."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handlers import discover
from service.cli.command import WITHOUT_SPARK
from service.errors import EngineUnavailable
from service.model import wire
from service.operations.examples import of_tenant
from service.operations.operation import Example, Operation
from tests.contract.entry_points import ENTRY_POINTS, EntryPoint
from tests.contract.openapi import ANY, problems
from tests.harness import Firn

APPROVED = Path(__file__).parent / "approved_operations.txt"
OPERATIONS = discover()
FORMS = [name for name in ENTRY_POINTS if name != "http"]
ALL = [(o, e) for o in OPERATIONS for e in o.examples]
# Events come by the same way as HTTP, which one test below shows; the forms of events take turns.
CASES = [
    pytest.param(
        operation,
        example,
        entry_point,
        id=f"{operation.name}: {example.title} ({entry_point})",
        marks=() if entry_point == "http" else pytest.mark.thorough,
    )
    for i, (operation, example) in enumerate(ALL)
    for entry_point in ("http", FORMS[i % len(FORMS)])
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


@pytest.mark.parametrize(("operation", "example", "entry_point"), CASES)
def test_an_example_is_answered_as_approved(
    operation: Operation,
    example: Example,
    entry_point: str,
    firn: Firn,
    tenant: str,
    published: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operation that needs no Spark, by the table of the command line, does without it."""
    answers = [firn.ok(of_tenant(request, tenant)) for request in example.given]
    if operation.name in WITHOUT_SPARK:
        monkeypatch.setattr(firn.app.engine, "run", refuse)
    status, answer = ENTRY_POINTS[entry_point](firn, of_tenant(example.after(answers), tenant))
    assert status == example.status, answer
    assert differences(example.answer, answer) == []
    post = published["paths"]["/database"]["post"]
    schemas = post["responses"][str(status)]["content"]["application/json"]["schema"]
    own = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in (operation.result, *operation.also)]
    assert problems(answer, {"oneOf": own}, published) == []
    assert problems(answer, schemas, published) == []


def refuse(*_: Any, **__: Any) -> Any:
    raise EngineUnavailable("there is none")


@pytest.fixture(scope="module")
def answers_by_http(firn: Firn) -> list[Any]:
    return list(_answers(ENTRY_POINTS["http"], firn, "events-by-http"))


@pytest.mark.parametrize("entry_point", FORMS)
def test_every_form_of_event_is_answered_as_http_is(
    entry_point: str, firn: Firn, tenant: str, answers_by_http: list[Any]
) -> None:
    """The same requests through both, a table each: changes, reads, refusals, and a key that is sent twice."""
    both = zip(_answers(ENTRY_POINTS[entry_point], firn, tenant), answers_by_http, strict=True)
    for (request, *by_event), (its_like, *by_http) in both:
        assert (request["operation"], by_event) == (its_like["operation"], by_http)


def _answers(entry_point: EntryPoint, firn: Firn, tenant: str) -> Iterator[tuple[dict[str, Any], int, bytes]]:
    """Requests of every kind through one entry point, each with its status and the stable part of its response."""
    table = {"tenant_id": tenant, "table": "t"}
    schema = {"fields": {"id": {"type": "long", "required": True}, "name": {"type": "string"}}, "primary_key": ["id"]}
    written = {"operation": "WRITE", **table, "records": [{"id": 1, "name": "é😀\u202e\n"}], "idempotency_key": "k"}
    for request in (
        {"operation": "CREATE_TABLE", **table, "schema": schema},
        {"operation": "CREATE_TABLE", **table, "schema": schema},
        written,
        written,
        {**written, "records": [{"id": 2}]},
        {"operation": "WRITE", **table, "records": [{"id": 2}, {"id": "3"}]},
        {"operation": "query", **table, "filter": {"name": {"eq": "é😀\u202e\n"}}},
        {"operation": "QUERY", **table, "table": "tt"},
        {"operation": "QUERY", **table, "filter": {"nmae": "x"}},
        {"operation": "UPDATE", **table, "updates": {"name": "Bo"}, "filter": {"id": 1}},
        {"operation": "DELETE", **table},
        {"operation": "LIST_PARTITIONS", **table},
        {"operation": "LIST_TABLES", "tenant_id": tenant},
        {"operation": "DROP_TABLE", **table, "purge": True},
        {"operation": "FROBNICATE", **table},
        {"operation": "", "tenant_id": tenant},
    ):
        status, answer = entry_point(firn, request)
        assert isinstance(answer["metadata"]["request_id"], str)
        answer["metadata"] = {k: v for k, v in answer["metadata"].items() if k == "row_count"}
        yield request, status, wire.render(answer).replace(tenant.encode(), b"the tenant")


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
