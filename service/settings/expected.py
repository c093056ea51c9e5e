"""What a value of a request or a setting must be, in terms of JSON rather than Python."""

import re
from collections.abc import Mapping
from typing import Any

from service.settings.kinds import MEMORY, WINDOW

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "one of {expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
}
_PATTERNS = {
    WINDOW: "hours such as 01:00-05:30 Europe/Zurich, without a zone for UTC",
    MEMORY: "an amount of memory such as 512m or 2g",
}


def expected(error: Mapping[str, Any]) -> str:
    """What pydantic expected, after "must be"."""
    values = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in (error.get("ctx") or {}).items()}
    if error["type"] == "string_pattern_mismatch" and values["pattern"] in _PATTERNS:
        return _PATTERNS[values["pattern"]]
    template = _EXPECTED.get(error["type"])
    if template is None:
        return str(error["msg"]).removeprefix("Input should be ")
    return re.sub(r"\b1 characters", "1 character", template.format(**values)).replace("'", '"')
