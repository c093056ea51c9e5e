"""What a request model found wrong, said as one error that names the field, the problem and the way out."""

import json
import types
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.errors import FirnError, InvalidRequest, UnknownField, nearest


def refusal(error: ValidationError, model: type[BaseModel]) -> FirnError:
    """The first thing that is wrong, as the error a caller sees."""
    first = _most_telling(error, model)
    cause = (first.get("ctx") or {}).get("error")
    if isinstance(cause, FirnError):
        return cause
    path = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, first["loc"][:-1])
        near = nearest(str(first["loc"][-1]), known)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
        return UnknownField(f"{path} is not a field here; {hint}", field=path, suggestion=near)
    if first["type"] == "missing":
        return InvalidRequest(f"{path} is missing; every such request needs it", field=path)
    if first["type"] == "value_error":
        return InvalidRequest(f"{path}: {first['msg'].removeprefix('Value error, ')}", field=path)
    return InvalidRequest(f"{path} is {_short(first['input'])}, but must be {_wanted(first)}", field=path)


def _most_telling(error: ValidationError, model: type[BaseModel]) -> ErrorDetails:
    """A misspelt name explains the field that is then missing, so it comes before that."""
    complaints = error.errors(include_url=False)
    misspelt = (
        c
        for c in complaints
        if c["type"] == "extra_forbidden" and nearest(str(c["loc"][-1]), _fields_at(model, c["loc"][:-1]))
    )
    return next(misspelt, complaints[0])


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


def _wanted(complaint: ErrorDetails) -> str:
    """What a value must be, in the words of JSON rather than of Python."""
    limits = complaint.get("ctx") or {}
    match complaint["type"]:
        case "string_type":
            return "text"
        case "int_type" | "int_from_float":
            return "a whole number"
        case "bool_type":
            return "true or false"
        case "list_type" | "tuple_type":
            return "a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "an object"
        case "literal_error":
            return f"one of {limits['expected']}".replace("'", '"')
        case "greater_than_equal":
            return f"at least {limits['ge']}"
        case "less_than_equal":
            return f"at most {limits['le']}"
        case "string_too_long":
            return f"at most {limits['max_length']} characters long"
        case "too_long":
            return f"a list of at most {limits['max_length']}"
        case "too_short":
            return f"a list of at least {limits['min_length']}"
    return complaint["msg"].removeprefix("Input should be ")


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        field = next((f for n, f in model.model_fields.items() if part in (n, f.alias)), None)
        inner = _model_in(field.annotation) if field else None
        model = inner or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, tuple, dict, Union, types.UnionType):
        return next((m for m in map(_model_in, get_args(annotation)) if m), None)
    return None
