"""Read table files and dataset files: YAML text or an object; an error names the key and, in a text, its line."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from service.errors import FirnError, InvalidRequest
from service.ingest.yaml_loader import NOT_YAML, Loader, yaml_problem
from service.jobs.schedules.times import ScheduleTiming, check_timing
from service.model.ingest.dataset import Dataset
from service.model.ingest.table_file import FileModel, TableFile
from service.model.validation import refusal

M = TypeVar("M", bound=FileModel)
_MAX_TEXT = 1 << 20


def read_table_file(content: str | Mapping[str, Any], field: str = "config") -> TableFile:
    """The table file in a request's field."""
    found = _read(content, TableFile, field, "a table file")
    trigger = found.compaction.trigger
    if trigger.schedule is not None:
        try:
            check_timing(ScheduleTiming(trigger.schedule, trigger.timezone or "UTC"), datetime.now(UTC))
        except FirnError as e:
            key = "timezone" if e.field == "timezone" else "schedule"
            path = f"compaction.trigger.{key}"
            raise _located(InvalidRequest(f"{path}: {e.message}", field=path), content, field) from e
    return found


def read_dataset(content: str | Mapping[str, Any], field: str = "dataset") -> Dataset:
    """The dataset file in a request's field."""
    return _read(content, Dataset, field, "a dataset file")


def stored_text(model: TableFile | Dataset) -> str:
    """A file as the table's property stores it."""
    return json.dumps(model.stored(), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def yaml_text(model: TableFile | Dataset) -> str:
    """A file as people write it."""
    return str(yaml.safe_dump(model.stored(), sort_keys=False, allow_unicode=True, width=120))


def _read(content: str | Mapping[str, Any], model: type[M], field: str, what: str) -> M:
    value = _parsed(content, field) if isinstance(content, str) else content
    if not isinstance(value, Mapping):
        raise InvalidRequest.at(field, f"expected an object with {', '.join(model.model_fields)}")
    try:
        return model.model_validate(value)
    except ValidationError as e:
        raise _located(refusal(e, model, what), content, field) from e
    except FirnError as e:
        raise _located(e, content, field) from e


def _parsed(text: str, field: str) -> Any:
    if len(text) > _MAX_TEXT:
        raise InvalidRequest.at(field, f"it has {len(text)} characters; send at most {_MAX_TEXT}")
    try:
        return yaml.load(text, Loader)  # a safe loader
    except yaml.MarkedYAMLError as e:
        raise InvalidRequest.at(field, yaml_problem(e)) from e
    except NOT_YAML as e:
        raise InvalidRequest.at(field, f"it is not YAML: {yaml_problem(e)[:200]}") from e


def _located(error: FirnError, content: str | Mapping[str, Any], field: str) -> FirnError:
    """The error with the line of the key that it is about, and the field of the request before the key."""
    key = error.field or ""
    line = _line_of(content, key) if isinstance(content, str) else None
    where = f"{field}: " if line is None else f"{field}: line {line}: "
    path = f"{field}.{key}" if key else field
    return type(error)(where + error.message, field=path, suggestion=error.suggestion, details=error.details)


def _line_of(text: str, path: str) -> int | None:
    """The line of a key such as `columns[2].type`; of the nearest key around it if it is missing."""
    node = yaml.compose(text, Loader)
    line = None
    for part in path.replace("[", ".[").split("."):
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and part.startswith("["):
            index = int(part[1:-1])
            if index >= len(node.value):
                break
            node = node.value[index]
            line = node.start_mark.line + 1
        else:
            break
    return line
