"""Parse and render JSON without loss: no number becomes a float on the way in."""

import base64
import json
import re
from decimal import Decimal
from typing import Any, NoReturn

import orjson
from pydantic import BaseModel, Field

from service.errors import BodyTooLarge, InvalidRequest

MOST_VALUES = 5_000_000
_MEASURED = 64 * 1024
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def parse(body: bytes | str) -> Any:
    """The value of a JSON text, with exact integers and other numbers as Decimal; InvalidRequest if it is not JSON."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    if values_in(raw) > MOST_VALUES:
        raise BodyTooLarge(
            f"the body has more than {MOST_VALUES:,} values; send many records to "
            "POST /tables/{tenant}/{namespace}/{table}/records, or in several requests"
        )
    raw = raw.removeprefix(b"\xef\xbb\xbf")  # the byte order mark, which some editors write
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise InvalidRequest(f"the body is not UTF-8: byte {e.start} cannot be read; send UTF-8 JSON") from e
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except json.JSONDecodeError as e:
        raise InvalidRequest(
            f"the body is not JSON: {e.msg} at line {e.lineno}, column {e.colno}; send one JSON object"
        ) from e
    except RecursionError as e:
        raise InvalidRequest("the body is nested too deeply; flatten it") from e
    except (ValueError, ArithmeticError) as e:
        raise InvalidRequest("the body contains a number that is too long; send it as a string") from e
    if _SURROGATE_ESCAPE.search(raw):
        _refuse_surrogates(value, "")
    return value


def values_in(raw: bytes) -> int:
    """About how many values a JSON text has, rather too many than too few; 0 for a short one."""
    return 0 if len(raw) < _MEASURED else raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f'{name} is not a JSON number; send it as a string: "{name}"')


def _refuse_surrogates(value: Any, path: str) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as e:
            problem = f"{path or 'the body'} contains half of a surrogate pair; send whole characters"
            raise InvalidRequest(problem, field=path or None) from e
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_surrogates(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_surrogates(key, f"{path}.(a key)" if path else "(a key)")
            _refuse_surrogates(item, f"{path}.{key}" if path else key)


def render(value: Any) -> bytes:
    """The JSON of responses: decimals as strings, times in ISO-8601, binary as base64."""
    return orjson.dumps(
        value, default=_default, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, BaseModel):
        return fields_of(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def fields_of(model: BaseModel) -> dict[str, Any]:
    """A model's fields by their JSON names. A field without a value is absent: no response has a null of its own."""
    values = (
        (info.serialization_alias or name, getattr(model, name)) for name, info in type(model).model_fields.items()
    )
    return {name: value for name, value in values if value is not None}


def omit_when_null(description: str, serialization_alias: str | None = None) -> Any:
    """A field of a response that is absent if it has no value; its JSON schema does not allow null either."""
    return Field(
        default=None,
        description=description,
        serialization_alias=serialization_alias,
        json_schema_extra=_never_null,
    )


def _never_null(schema: dict[str, Any]) -> None:
    schema.pop("default", None)
    options = [option for option in schema.pop("anyOf", []) if option.get("type") != "null"]
    if len(options) > 1:
        schema["anyOf"] = options
    elif options:
        schema |= options[0]


def replace_surrogates(value: Any) -> Any:
    """The same value with every unpaired surrogate replaced by a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {replace_surrogates(k): replace_surrogates(v) for k, v in value.items()}
    if isinstance(value, list):
        return [replace_surrogates(v) for v in value]
    return value
