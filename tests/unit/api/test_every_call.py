"""Thousands of calls made from the OpenAPI document, fitting and not: no defect, every failure in the one shape.

Spark was never started, so what needs it is refused as unavailable.
"""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from handlers import discover
from service.api import http
from service.app import App
from service.model import wire
from service.settings import load
from tests.contract.openapi import problems
from tests.harness import Firn
from tests.support.refusals import LEAKS, check_message
from tests.support.served import served

OPERATIONS = discover()
DOCUMENT: dict[str, Any] = http.declare(OPERATIONS).openapi()
CALLS = 60
UNAVAILABLE = "ENGINE_UNAVAILABLE"


@pytest.fixture(scope="module")
def firn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firn]:
    home = tmp_path_factory.mktemp("home")
    roots = {"FIRN_INGEST__ALLOWED_ROOTS": str(tmp_path_factory.mktemp("files"))}
    app = App(load({"FIRN_HOME": str(home), "FIRN_LIMITS__BODY_MB": "1", **roots}), [])
    app.engine._state = "failed"  # it is not waited for
    with served(app) as firn:
        yield firn
    app.stop()


def document_of(operation: str) -> dict[str, Any]:
    """The document with one operation for POST /database."""
    made = copy.deepcopy(DOCUMENT)
    body = made["paths"]["/database"]["post"]["requestBody"]["content"]["application/json"]
    body.pop("examples")
    body["schema"] = {"$ref": body["schema"]["discriminator"]["mapping"][operation]}
    return made


def check(firn: Firn, case: Any, response: Any) -> None:
    declared = case.operation.definition.raw["responses"]
    text = response.content.decode()
    told = (case.method, case.path, case.body, response.status_code, text[:1000])
    assert str(response.status_code) in declared or (response.status_code < 500 and "default" in declared), told
    if response.status_code < 400:
        kind = response.headers["content-type"][0].partition(";")[0]
        content = declared[str(response.status_code)].get("content", {})
        if kind == "application/json" and "statusCode" not in text:
            assert problems(wire.parse(text), content[kind]["schema"], DOCUMENT) == [], told
        return
    assert str(firn.home) not in text, told
    assert "Traceback" not in text, told
    body = wire.parse(text)
    if case.path == "/ready":
        return
    assert set(body) == {"success", "error", "metadata"}, told
    assert {"code", "message", "retryable"} <= set(body["error"]), told
    assert response.status_code < 500 or body["error"]["code"] == UNAVAILABLE, told
    sent = json.dumps(case.body, default=str)
    if not any(leak in sent for leak in LEAKS):  # else it may be quoted
        check_message(body["error"]["message"])


def call_all(firn: Firn, document: dict[str, Any], only: str | None, calls: int) -> Counter[int]:
    """So many calls of each method of each path in the document, half of them with what it does not allow.

    Returns how many were answered with each status.
    """
    import schemathesis

    seen: Counter[int] = Counter()

    schema = schemathesis.openapi.from_dict(document)
    for result in schema.get_all_operations():
        operation = result.ok()
        if only is not None and operation.path != only:
            continue
        for mode in schemathesis.GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=calls // 2,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def call(case: Any) -> None:
                response = case.call(base_url=firn.base_url)
                seen[response.status_code] += 1
                check(firn, case, response)

            with suppress(Unsatisfiable):  # nothing is against a document that allows everything
                call()
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("operation", [o.name for o in OPERATIONS])
def test_no_call_of_an_operation_is_a_defect(operation: str, firn: Firn) -> None:
    seen = call_all(firn, document_of(operation), "/database", CALLS)
    assert seen.total() >= CALLS // 2, seen
    assert seen[400], seen


@pytest.mark.thorough
def test_no_call_of_a_route_is_a_defect(firn: Firn) -> None:
    assert {200, 400, 404} <= call_all(firn, document_of("QUERY"), None, CALLS).keys()
