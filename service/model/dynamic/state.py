"""What a dynamic table's rows stand for: the snapshots of its sources, as JSON in the summary of its own snapshot.

The JSON has the shape of the refresh state in Iceberg's specification of materialized views.
"""

from dataclasses import dataclass

REFRESH_STATE_PROPERTY = "refresh-state"
"""In the summary of a snapshot."""


@dataclass(frozen=True)
class SourceState:
    """A source at the snapshot that was read; None if it had none. A renamed table keeps its UUID."""

    namespace: str
    table: str
    uuid: str
    snapshot_id: int | None
    is_base: bool = True
    """False for a dynamic table."""


@dataclass(frozen=True)
class RefreshState:
    """The sources of one refresh."""

    pass_id: str
    definition: str
    """The definition that the rows were computed by; a changed definition has another."""
    refreshed_ms: int
    """When the sources were pinned."""
    sources: tuple[SourceState, ...]
    """The query's own sources, and after them the base tables of those that are dynamic tables."""
