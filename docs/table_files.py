"""The tables of docs/reference/table-files.md: every key of a table file and of a dataset file, from their models."""

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from service.errors import FirnError
from service.ingest.files import read_dataset, read_table_file
from service.model.ingest.dataset import Dataset, MaxRejects
from service.model.ingest.table_file import TableFile

_NAMES = {str: "text", int: "whole number", bool: "true, false", MaxRejects: "number of rows, or percentage"}
REFUSED_TABLE_FILES = (
    "name: sales\ncolour: blue",
    "description: no name",
    "name: sales\nstorage: {type: local, base_path: s3://bucket/sales/}",
    "name: sales\nstorage: {type: s3, base_path: data/sales/}",
    "name: sales\nexport: true",
    'name: sales\npartitioning: {pattern: "daily.parquet"}',
    'name: sales\npartitioning: {pattern: "{date}.csv"}',
    'name: sales\npartitioning: {pattern: "../{date}.parquet"}',
    'name: sales\npartitioning: {date_format: "%d. %B"}',
    "name: sales\ncompaction: {trigger: {type: schedule}}",
    'name: sales\ncompaction: {trigger: {type: manual, schedule: "0 3 1 * *"}}',
    'name: sales\ncompaction: {strategy: {output_pattern: "{year}.parquet"}}',
    "name: sales\ncompaction: {enabled: maybe}",
    'name: sales\ningestion: {watch: {pattern: "sales_{date}.csv"}}',
    'name: sales\ningestion: {watch: {folder: in, pattern: "sales.csv"}}',
    'name: sales\ningestion: {watch: {folder: in, pattern: "{date}.csv", settle_seconds: 5, done_marker: _SUCCESS}}',
)
"""Table files with a mistake each."""
_ID = "columns:\n  - {name: id, type: BIGINT}\n"
REFUSED_DATASETS = (
    "columns: []",
    "columns:\n  - {name: id, type: NUMBER}",
    'columns:\n  - {name: id, type: "DECIMAL(50,2)"}',
    "columns:\n  - {name: id, type: BIGINT}\n  - {name: ID, type: BIGINT}",
    "columns:\n  - {name: id, type: BIGINT, transform: shout}",
    'columns:\n  - {name: id, type: BIGINT, source: Id, expression: "1"}',
    f'{_ID}  - {{name: twice, type: BIGINT, expression: "id * rate"}}',
    "columns:\n  - {name: id, type: BIGINT, default: none}",
    f'{_ID}filters:\n  - {{column: price, operator: ">", value: 0}}',
    f'{_ID}filters:\n  - {{column: id, operator: ">"}}',
    f"{_ID}filters:\n  - {{column: id, operator: is_null, value: 1}}",
    f'{_ID}filters:\n  - {{column: id, operator: ">", value: many}}',
    f"{_ID}on_error: ignore",
    f"{_ID}on_error: null",
    f"{_ID}max_rejects: 101%",
    f"{_ID}on_drift: {{new: warn}}",
    f'{_ID}csv: {{delimiter: "||"}}',
    f"{_ID}csv: {{encoding: utf-7}}",
)
"""Dataset files with a mistake each."""


def parts() -> dict[str, str]:
    """The parts of the page by name."""
    return {
        "table_file": _keys(TableFile),
        "dataset_file": _keys(Dataset),
        "refused_table_files": _refused(REFUSED_TABLE_FILES, read_table_file),
        "refused_datasets": _refused(REFUSED_DATASETS, read_dataset),
    }


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a file as a path such as `columns[].name`, a group before its keys."""
    for name, info in model.model_fields.items():
        yield f"{prefix}{name}", info
        inner, is_list = _model(info.annotation)
        if inner is not None:
            yield from keys(inner, f"{prefix}{name}{'[]' if is_list else ''}.")


def _keys(model: type[BaseModel]) -> str:
    rows = [
        f"| `{path}` | {_values(info)} | {_default(info)} | {_escaped(info.description or '')} |"
        for path, info in keys(model)
    ]
    return "\n".join(["| key | values | default | |", "|---|---|---|---|", *rows])


def _model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The group of keys that an annotation means, and whether the file has a list of them."""
    for kind in _kinds(annotation):
        if get_origin(kind) is tuple:
            return _model(get_args(kind)[0])[0], True
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not MaxRejects:
            return kind, False
    return None, False


def _kinds(annotation: Any) -> list[Any]:
    """The types of an annotation, without null."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _kinds(part) if kind is not NoneType]
    return [annotation]


def _values(info: FieldInfo) -> str:
    kinds = _kinds(info.annotation)
    shown = " or ".join(filter(None, map(_kind, kinds)))
    limits = [
        f"{word} {getattr(each, name)}"
        for each in info.metadata
        for kind, name, word in ((Ge, "ge", "from"), (Le, "le", "to"))
        if isinstance(each, kind)
    ]
    noun = "entries" if any(get_origin(kind) is tuple for kind in kinds) else "characters"
    most = next((each.max_length for each in info.metadata if isinstance(each, MaxLen)), None)
    if most == 1:
        return "one character"
    limits += [f"at most {most} {noun}"] if most else []
    limits += ["not empty" for each in info.metadata if isinstance(each, MinLen)]
    return ", ".join([_escaped(shown), *limits])


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return f"list of {_plural(_kind(_kinds(get_args(kind)[0])[0]))}"
    if kind in _NAMES:
        return _NAMES[kind]
    return "group" if isinstance(kind, type) and issubclass(kind, BaseModel) else "any value"


def _plural(name: str) -> str:
    return {"text": "texts", "group": "groups"}.get(name, name)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "*required*"
    value = info.get_default(call_default_factory=True)
    if value is None or value == "" or value == () or isinstance(value, BaseModel):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _refused(samples: tuple[str, ...], read: Any) -> str:
    shown = []
    for sample in samples:
        try:
            read(sample)
        except FirnError as e:
            text = "<br>".join(f"`{_escaped(line)}`" for line in sample.split("\n"))
            shown.append(f"| {text} | {_escaped(e.message)} |")
        else:
            raise AssertionError(f"this is not refused:\n{sample}")
    return "\n".join(["| file | error |", "|---|---|", *shown])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
