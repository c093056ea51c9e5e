"""Responses for other programs: CSV for spreadsheets, YAML for people's scripts."""

import csv
import io
import json
from typing import Any

_LISTS = (
    "data",
    "tables",
    "namespaces",
    "snapshots",
    "changes",
    "backups",
    "jobs",
    "schedules",
    "recommendations",
    "partitions",
    "files",
    "days",
    "periods",
)
"""The fields that hold the items of a list; others hold only part of what a response says."""


def to_yaml(data: dict[str, Any]) -> str:
    """The whole response as one YAML document."""
    import yaml  # 20 ms, which no other format needs

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, explicit_start=True, width=10_000)
    return text


def to_csv(data: dict[str, Any], *, heading: bool = True) -> str:
    """The rows of a response with a heading; an array or an object in a field is JSON."""
    rows = _rows(data)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names and heading:
        writer.writerow(names)
    writer.writerows([_field(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a list, such as `data` or `tables`; else what the response says, as one row."""
    fields = {name: value for name, value in data.items() if name not in ("success", "metadata", "warnings")}
    if len(fields) == 1 and isinstance(value := next(iter(fields.values())), dict):
        return [value]
    for name, value in fields.items():
        if name in _LISTS and isinstance(value, list):
            return [item if isinstance(item, dict) else {name.removesuffix("s"): item} for item in value]
    return [fields]


def _field(value: Any) -> Any:
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return value
