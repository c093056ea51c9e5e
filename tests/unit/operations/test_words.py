"""The words of requests and responses: one name for one thing, and no field without a value."""

import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from handlers import discover
from service.api.jobs import JobResult

RESULTS = dict.fromkeys([JobResult, *(model for o in discover() for model in (o.result, *o.also))])


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models in a type, and those in their fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from models(info.annotation)
    for part in get_args(kind):
        yield from models(part)


SHOWN = list(dict.fromkeys(model for result in RESULTS for model in models(result)))


def allows_null(kind: Any) -> bool:
    if kind is Any or kind is None or kind is types.NoneType:
        return True
    return get_origin(kind) in (Union, types.UnionType) and any(map(allows_null, get_args(kind)))


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model.__name__)
def test_a_field_without_a_value_is_absent_and_the_schema_says_so(model: type[BaseModel]) -> None:
    schema = model.model_json_schema(mode="serialization")
    for name, info in model.model_fields.items():
        if allows_null(info.annotation):
            shown = info.serialization_alias or name
            assert shown not in schema.get("required", ()), f"{model.__name__}.{shown} must be able to be absent"
            field = schema["properties"][shown]
            assert "null" not in str(field.get("anyOf", field.get("type"))), f"{model.__name__}.{shown} may be null"
            assert "default" not in field
            assert "null" not in (info.description or ""), f"{model.__name__}.{shown} is never null"
