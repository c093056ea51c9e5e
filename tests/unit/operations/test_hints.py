"""Words of other systems are answered with the right form, and no suggestion turns reading into writing."""

from collections.abc import Iterator
from typing import Any

import pytest

from handlers import discover
from service.app import App
from service.operations.operation import KeyedRequest
from service.pipeline.parse import _OTHER_WORDS, _READING, RequestParser
from tests.harness import Firn
from tests.support.served import served

TABLE = {"tenant_id": "hints", "table": "people"}
CREATE = {"fields": {"id": {"type": "long"}, "age": {"type": "integer"}, "name": {"type": "string"}}}


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        firn.ok({"operation": "CREATE_TABLE", **TABLE, "schema": CREATE})
        yield firn


@pytest.mark.parametrize(
    ("fields", "code", "form"),
    [
        ({"filter": "age > 22"}, "INVALID_FILTER", '{"age": {"gt": 22}}'),
        ({"filter": "age>=22.50"}, "INVALID_FILTER", '{"age": {"gte": 22.50}}'),
        ({"filters": "name <> 'Ann'"}, "INVALID_FILTER", '{"name": {"ne": "Ann"}}'),
        ({"filter": "age > 22 AND id < 3"}, "INVALID_FILTER", '{"expression": "age > 22 AND id < 3"}'),
        ({"filter": '{"age": 22}'}, "INVALID_FILTER", 'write {"age": 22}'),
        ({"sort": "age desc"}, "UNKNOWN_FIELD", '{"field": "age", "order": "desc"}'),
        (
            {"sort": ["age Desc, id"]},
            "UNKNOWN_FIELD",
            '[{"field": "age", "order": "desc"}, {"field": "id", "order": "asc"}]',
        ),
        ({"where": {}}, "UNKNOWN_FIELD", '{"filter": {"age": {"gt": 22}}}'),
        ({"order_by": "age"}, "UNKNOWN_FIELD", '{"sort": [{"field": "age", "order": "desc"}]}'),
        ({"columns": ["age"]}, "UNKNOWN_FIELD", '{"projection": ["id", "age"]}'),
        ({"operation": "SELECT"}, "UNKNOWN_OPERATION", '{"operation": "QUERY", '),
        ({"operation": "insert"}, "UNKNOWN_OPERATION", '{"operation": "WRITE", '),
        ({"operation": "DROP"}, "UNKNOWN_OPERATION", "use DROP_TABLE"),
        ({"operation": "SELECT * FROM people"}, "UNKNOWN_OPERATION", '{"operation": "QUERY", "sql": "SELECT'),
        ({"operation": "insert into"}, "UNKNOWN_OPERATION", '{"operation": "WRITE", '),
        ({"operation": "MERGE_INTO"}, "UNKNOWN_OPERATION", "use UPSERT"),
        ({"operation": "Delete from people"}, "UNKNOWN_OPERATION", "use DELETE"),
        ({"operation": "COUNT"}, "UNKNOWN_OPERATION", '{"operation": "QUERY", '),
        ({"operation": "UNDELETE"}, "UNKNOWN_OPERATION", "use RESTORE_TABLE"),
        ({"operation": "VACUUM"}, "UNKNOWN_OPERATION", "use COMPACT"),
        ({"operation": "show namespaces"}, "UNKNOWN_OPERATION", "use LIST_NAMESPACES"),
        ({"operation": "DROP NAMESPACE shop"}, "UNKNOWN_OPERATION", "use DROP_NAMESPACE"),
        ({"operation": "SHOW TABLES"}, "UNKNOWN_OPERATION", "use LIST_TABLES"),
        ({"operation": "READ", "where": "age > 22"}, "UNKNOWN_OPERATION", '{"operation": "QUERY", '),
        ({"where": "age > 22"}, "UNKNOWN_FIELD", '{"filter": {"age": {"gt": 22}}}'),
        ({"page_size": 5}, "UNKNOWN_FIELD", "did you mean 'limit'"),
    ],
)
def test_what_other_systems_call_it_is_answered_with_the_right_form(
    firn: Firn, fields: dict[str, Any], code: str, form: str
) -> None:
    assert form in firn.fail({"operation": "QUERY", **TABLE, **fields}, code, 400)["message"]


def test_no_word_for_reading_is_answered_with_an_operation_that_writes() -> None:
    operations = {o.name: o for o in discover()}
    parser = RequestParser(operations.values())
    things = ("", "S", "_TABLE", "_TABLES", "_BACKUP", "_SCHEDULE", "_NAMESPACE", "_ROWS", "_COMPACTION")
    for word in _READING:
        for thing in things:
            suggested, hint = parser._hint(word + thing)
            assert suggested is None or not issubclass(operations[suggested].request, KeyedRequest), word + thing
            assert hint
    for name, operation in operations.items():
        if not issubclass(operation.request, KeyedRequest):
            suggested, _ = parser._hint(name[:-1])
            assert suggested == name


def test_a_statement_that_begins_with_an_operation_is_answered_with_that_one() -> None:
    operations = {o.name: o for o in discover()}
    parser = RequestParser(operations.values())
    words = [*operations, *(word for others in _OTHER_WORDS.values() for word in others)]
    assert len(set(words)) == len(words)
    for name in operations:
        suggested, _ = parser._hint(f"{name} people")
        assert suggested == name
