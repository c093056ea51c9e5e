"""Requests that must be refused: with which code, field and suggestion, and without an effect."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from tests.contract.entry_points import ENTRY_POINTS
from tests.harness import Firn

TENANT = "refusals"
TABLE = {"tenant_id": TENANT, "table": "people"}
DAILY = {"table": "daily"}
GIVEN = (
    {
        "operation": "CREATE_TABLE",
        **TABLE,
        "schema": {
            "fields": {
                "id": {"type": "long", "required": True},
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "born": {"type": "date"},
                "height": {"type": "decimal(5,2)"},
                "home": {"type": "struct", "fields": {"city": {"type": "string", "required": True}}},
                "tags": {"type": "array", "items": "string"},
                "scores": {"type": "map", "key_type": "string", "value_type": "double"},
            },
            "primary_key": ["id"],
        },
    },
    {"operation": "WRITE", **TABLE, "records": [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo", "age": 7}]},
    {
        "operation": "CREATE_TABLE",
        **TABLE,
        **DAILY,
        "schema": {"fields": {"day": {"type": "date"}, "n": {"type": "long"}}},
        "partition": {"partitions": [{"field": "day", "transform": "identity"}]},
    },
)
LEAKS = (
    *("Traceback", "py4j", "org.apache", "java.", "pydantic", "pyiceberg", "sqlalchemy", "SQLSTATE", "0x"),
    *('File "', "site-packages", "instance of", "dictionary", "dict[", "None", "True", "False"),
)


@dataclass(frozen=True)
class Bad:
    """A request without the fields that every request has, and the error it must get."""

    request: dict[str, Any]
    code: str
    field: str | None
    suggestion: str | None = None
    status: int = 400

    def __str__(self) -> str:
        return f"{self.request.get('operation')} {self.field} {self.code}"


def check(bad: Bad, entry_points: tuple[str, ...], firn: Firn) -> None:
    """Send it through each entry point: all must refuse it in the same way."""
    request = {k: v for k, v in {**TABLE, **bad.request}.items() if not (k == "table" and v is None)}
    errors = []
    for entry_point in entry_points:
        status, body = ENTRY_POINTS[entry_point](firn, request)
        assert set(body) == {"success", "error", "metadata"}, body
        error = body["error"]
        assert (status, error["code"], error.get("field"), error.get("suggestion"), error["retryable"]) == (
            bad.status,
            bad.code,
            bad.field,
            bad.suggestion,
            False,
        ), error
        check_message(error["message"])
        if bad.suggestion:
            assert bad.suggestion in error["message"]
        errors.append(error)
    assert errors == errors[:1] * len(entry_points)


def table_states(firn: Firn) -> list[Any]:
    """The state of the tenant's tables and schedules."""
    tables = firn.ok({"operation": "LIST_TABLES", "tenant_id": TENANT})["tables"]
    scheduled = firn.ok({"operation": "LIST_SCHEDULES", "tenant_id": TENANT, "scope": "tenant"})["schedules"]
    described = [firn.post({"operation": "DESCRIBE_TABLE", "tenant_id": TENANT, "table": t}) for t in tables]
    return [tables, scheduled, *(answer.get("description") for answer in described)]


def check_message(message: str) -> None:
    """The message is one readable line that reveals no internals."""
    assert 10 < len(message) <= 700, len(message)
    assert not [c for c in message if unicodedata.category(c) in ("Cc", "Zl", "Zp")], message
    assert not [leak for leak in LEAKS if leak in message], message


SHAPES = (("[", "]"), ('{"and": [', "]}"))


def check_deep_nesting(text: str, shape: tuple[str, str], firn: Firn) -> None:
    """A request with nesting in the place of `%s` is refused, however deep."""
    opening, closing = shape
    for depth in (40, 300, 800, 930, 960):
        response = firn.send(text % (opening * depth + "1" + closing * depth))
        assert response.status_code == 400, response.text[:300]
        check_message(firn.parsed(response)["error"]["message"])
