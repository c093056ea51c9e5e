"""The definition of a dynamic table."""

from dataclasses import dataclass
from typing import Literal

from service.model.names import TableName

Mode = Literal["AUTO", "INCREMENTAL", "FULL", "INCREMENTAL_STRICT"]
Initialise = Literal["ON_CREATE", "ON_SCHEDULE"]
TableState = Literal["active", "suspended", "failed"]


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
