"""The definition of a dynamic table, which the table itself has as a property, and the ledger too."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from service.errors import InvalidRequest, TableNotBuilt
from service.model.names import TableName

Mode = Literal["AUTO", "INCREMENTAL", "FULL", "INCREMENTAL_STRICT"]
Initialise = Literal["ON_CREATE", "ON_SCHEDULE"]
TableState = Literal["active", "suspended", "failed"]

DEFINITION_PROPERTY = "firn.dynamic"
"""What makes a table a dynamic one: its definition as JSON. A commit that replaces the rows by those of another query
changes it, too."""


@dataclass(frozen=True)
class DynamicOptions:
    """What a definition says beside its query."""

    target_lag_s: int | None
    """None for `downstream`: the table is refreshed when those that read it are."""
    refresh_mode: Mode = "AUTO"
    initialise: Initialise = "ON_CREATE"
    deduplication: bool = False
    cardinality_threshold: float = 0.3
    scheduled: bool = True
    """Whether the worker refreshes it; else it is refreshed only by request."""


@dataclass(frozen=True)
class DynamicSource:
    """A table that the query reads, by the UUID that it keeps when it is renamed."""

    name: TableName
    uuid: str
    text: str
    """The name in the query."""
    columns: tuple[str, ...] = ()
    """Its columns when the query was declared: `*` does not mean those that were added later."""


@dataclass(frozen=True)
class Definition:
    """A dynamic table as it was declared."""

    name: TableName
    uuid: str
    """The UUID of the table that holds the result."""
    version: str
    """Another one for each change of the query."""
    query: str
    options: DynamicOptions
    sources: tuple[DynamicSource, ...]
    classes: tuple[str, ...] = ()
    """The operators of the query."""
    full_code: str | None = None
    full_reason: str | None = None
    """Why it is computed in full at each refresh, if it is not incremental."""
    owner: str | None = None
    """Its creator, whose rights its refreshes have, as `Principal.dumps` writes it; None without authentication."""

    @property
    def text(self) -> str:
        """As JSON, without what the table itself says: its name and its UUID."""
        stored = asdict(self)
        del stored["name"], stored["uuid"]
        return json.dumps(stored)


def read_definition(name: TableName, uuid: str, text: str) -> Definition:
    """The definition of a table, of its JSON."""
    stored = json.loads(text)
    sources = (
        DynamicSource(TableName(**one["name"]), one["uuid"], one["text"], tuple(one["columns"]))
        for one in stored.pop("sources")
    )
    options, classes = DynamicOptions(**stored.pop("options")), tuple(stored.pop("classes"))
    return Definition(name, uuid, options=options, sources=tuple(sources), classes=classes, **stored)


def is_dynamic_table(properties: Mapping[str, str]) -> bool:
    """Whether a table holds the result of a query."""
    return DEFINITION_PROPERTY in properties


def check_built(properties: Mapping[str, str], table: str, snapshot_id: int | None) -> None:
    """Refuse to read a dynamic table whose CREATE has not built it yet: that it has no rows is not its result."""
    text = properties.get(DEFINITION_PROPERTY)
    if text is not None and snapshot_id is None and json.loads(text)["options"]["initialise"] == "ON_CREATE":
        raise TableNotBuilt(
            f"the dynamic table {table!r} is being built; try again when it is. If the request that created it ended "
            "early, send it again, or REFRESH_DYNAMIC_TABLE",
            field="table",
        )


def refuse_dynamic_table(properties: Mapping[str, str], table: str, operation: str, *, field: str = "table") -> None:
    """Refuse an operation that would make the rows of a dynamic table other ones than those of its query."""
    if is_dynamic_table(properties):
        raise InvalidRequest(
            f"table {table!r} is a dynamic table: its rows are the result of its query, so {operation} is not "
            "possible; change its sources instead, or its query by CREATE_DYNAMIC_TABLE with replace: true",
            field=field,
        )
