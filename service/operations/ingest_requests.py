"""What the operations on ingestion tables share: a table file that also names the table, and a dataset file."""

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import InvalidRequest, TableNotFound
from service.ingest.day_files import FileOutcome
from service.ingest.files import read_dataset, read_table_file, stored_text
from service.ingest.sources.roots import Roots, is_remote
from service.model.call import Call
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import table_file_of
from service.model.ingest.table_file import TableFile

_MOST_BYTES = 1 << 20


def _may_lack_table(schema: dict[str, Any]) -> None:
    schema["required"].remove("table")
    schema["properties"]["table"]["description"] += "; default: the one in config"


class ConfigRequest(BaseModel):
    """A request that may have a table file, which names the table if the request does not."""

    model_config = ConfigDict(json_schema_extra=_may_lack_table)

    config: Any = Field(default=None, description="a table file: its YAML as text, or the same as an object")

    @model_validator(mode="before")
    @classmethod
    def _name_table(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("config") is None:
            return value
        found = read_table_file(_content(value["config"], "config"))
        for name, given in (("table", found.name), ("namespace", found.namespace)):
            if given is not None and value.get(name, given) != given:
                raise InvalidRequest.at(name, f"config is about {name} {given!r}; send the same, or leave it out")
        return {**value, "table": found.name, **({"namespace": found.namespace} if found.namespace else {})}

    @property
    def table_file(self) -> TableFile | None:
        return None if self.config is None else read_table_file(_content(self.config, "config"))


class TableFileRequest(ConfigRequest):
    """Such a request that may have a dataset file, too."""

    dataset: Any = Field(default=None, description="a dataset file: its YAML as text, or the same as an object")

    def dataset_or(self, path: str | None, roots: Roots) -> Dataset | None:
        """The dataset of the request; else the one at a path, which starts at the service's working directory."""
        if self.dataset is not None:
            return read_dataset(_content(self.dataset, "dataset"))
        return None if path is None else read_dataset_at(path, roots)


def ingested_table(request: Any, commits: Commits, call: Call) -> Table:
    """The table of a ConfigRequest; its table file must be the one in the request, if there is one."""
    try:
        table = commits.table(request.table_name, call)
    except TableNotFound as e:
        if request.config is None:
            raise
        raise TableNotFound(f"{e.message}; create it first, by CREATE_TABLE with this config", field="table") from e
    given = request.table_file
    stored = table_file_of(table.properties)
    if given is not None and stored is not None and not _is_same(given, stored):
        raise InvalidRequest(
            f"config differs from the table file that {request.table!r} has; leave it out, or apply it first",
            field="config",
        )
    return table


def _is_same(given: TableFile, stored: TableFile) -> bool:
    """Whether two table files say the same; a renamed table's has its old name until another is applied."""
    return stored_text(given) == stored_text(stored.model_copy(update={"name": given.name}))


def read_dataset_at(path: str, roots: Roots) -> Dataset:
    """The dataset file that a table file names."""
    field = "config.ingestion.dataset_config"
    place = roots.resolve(path, field)
    if is_remote(place):
        raise InvalidRequest.at(field, f"{path!r} must be a local file; send its content as `dataset` instead")
    try:
        if os.path.getsize(place) > _MOST_BYTES:
            raise InvalidRequest.at(field, f"{path!r} has more than {_MOST_BYTES} bytes, so it is no dataset file")
        text = Path(place).read_text()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else "it is not text"
        raise InvalidRequest.at(
            field,
            f"{path!r} cannot be read ({reason}); it starts at the service's working directory, {os.getcwd()}. Correct "
            "it, or send the content as `dataset`",
        ) from e
    return read_dataset(text, path)


def parse_date(text: str, field: str = "date") -> date:
    """A date of a request."""
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InvalidRequest.at(field, f"{text[:80]!r} is not a date; write it as 2024-01-31")


def file_counts(file: FileOutcome) -> dict[str, Any]:
    """The rows of a file, as responses show them."""
    return {
        "records_read": file.records_read,
        "records_ingested": file.records_ingested,
        "records_rejected": file.records_rejected,
        "rejects": dict(file.rejects) or None,
    }


def _content(value: Any, field: str) -> str | Mapping[str, Any]:
    if isinstance(value, str | Mapping):
        return value
    raise InvalidRequest.at(field, "expected a text in YAML, or an object")
