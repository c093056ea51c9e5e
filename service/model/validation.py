"""Turn the validation errors of a model into one error: which field, what is wrong, and how to fix it."""

import json
import types
from decimal import Decimal
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.errors import FirnError, InvalidRequest, UnknownField, nearest
from service.settings.expected import expected

# What other systems call a field, and how to write the ones that look different there.
_OTHER_WORDS = {
    "filter": ("where", "condition", "predicate"),
    "projection": ("select", "columns", "fields"),
    "sort": ("order_by", "orderby", "order"),
    "records": ("rows", "values", "data"),
    "updates": ("set", "values", "changes"),
    "key_cols": ("on", "keys", "key", "merge_keys"),
    "limit": ("top", "max_rows", "page_size", "take"),
    "offset": ("skip",),
    "as_of": ("snapshot_id", "snapshot", "tag", "backup", "timestamp", "time", "version", "at", "time_travel"),
}
_FORMS = {
    "filter": '{"filter": {"age": {"gt": 22}}}',
    "sort": '{"sort": [{"field": "age", "order": "desc"}]}',
    "projection": '{"projection": ["id", "age"]}',
    "updates": '{"updates": {"age": 22}}',
    "as_of": '{"as_of": "2024-01-31T12:00:00Z"}',
}


def refusal(error: ValidationError, model: type[BaseModel], needed_by: str = "this operation") -> FirnError:
    """The error for a caller: the most helpful of all that is wrong. `needed_by` is what the model describes."""
    first = _of_field(error, model)
    cause = (first.get("ctx") or {}).get("error")
    if isinstance(cause, FirnError):
        return cause
    path = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, first["loc"][:-1])
        near = _near(first, model)
        form = _FORMS.get(near or "")
        hint = (
            f"did you mean {near!r}" + (f", such as {form}?" if form else "?")
            if near
            else f"valid names are {', '.join(known)}"
        )
        return UnknownField(f"{path} is not a known field; {hint}", field=path, suggestion=near)
    if first["type"] == "missing":
        return InvalidRequest(f"{path} is missing; {needed_by} requires it", field=path)
    if first["type"] == "value_error":
        problem = first["msg"].removeprefix("Value error, ")
        return InvalidRequest(f"{path}: {problem}" if path else problem, field=path or None)
    return InvalidRequest(f"{path} is {_short(first['input'])}, but must be {expected(first)}", field=path)


def _of_field(error: ValidationError, model: type[BaseModel]) -> ErrorDetails:
    """The most helpful error. One of a field with several types is about the object, if the value is one, or else about
    all the types together; the path has no name of a type in either case."""
    errors = error.errors(include_url=False)
    first = _most_helpful(errors, model)
    at = _type_in(first["loc"], model)
    if at is None:
        return first
    place = first["loc"][:at]
    same = [e for e in errors if e["loc"][:at] == place]
    inside = [e for e in same if len(e["loc"]) > at + 1]
    if inside:
        found = _most_helpful(inside, model)
        return {**found, "loc": (*place, *found["loc"][at + 1 :])}
    kinds = list(dict.fromkeys(map(expected, same)))
    either = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
    return {**first, "type": "union", "loc": place, "msg": either}


def _type_in(loc: tuple[int | str, ...], model: type[BaseModel]) -> int | None:
    """Where a path has the name of a type, as pydantic names the types of a field that may have several."""
    kind: Any = model
    for i, part in enumerate(loc):
        kinds = [each for each in get_args(kind) if each is not types.NoneType] if _is_union(kind) else [kind]
        if len(kinds) > 1:
            return i
        if isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
            field = next((f for n, f in kinds[0].model_fields.items() if part in (n, f.alias)), None)
            kind = field.annotation if field else None
        else:
            kind = (get_args(kinds[0]) or (None,))[-1 if get_origin(kinds[0]) is dict else 0]
    return None


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _most_helpful(errors: list[ErrorDetails], model: type[BaseModel]) -> ErrorDetails:
    """A misspelt field before a missing one: the first explains the second."""
    misspelt = (e for e in errors if e["type"] == "extra_forbidden" and _near(e, model))
    return next(misspelt, errors[0])


def _near(error: ErrorDetails, model: type[BaseModel]) -> str | None:
    """The known field that an unknown one most likely meant."""
    name, known = str(error["loc"][-1]), _fields_at(model, error["loc"][:-1])
    meant = (field for field, words in _OTHER_WORDS.items() if name.casefold() in words and field in known)
    return next(meant, None) or nearest(name, known)


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


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
