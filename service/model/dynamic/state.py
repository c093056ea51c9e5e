"""What a dynamic table's rows stand for: the snapshots of its sources, as JSON in the summary of its own snapshot.

The JSON has the shape of the refresh state in the draft of Iceberg's specification of materialized views, with further
fields that begin with `firn-`.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.model.names import TableName, decode, decode_namespace

REFRESH_STATE_PROPERTY = "refresh-state"
"""In the summary of a snapshot."""
# Iceberg's own number for a table without a snapshot.
_NO_SNAPSHOT = -1


@dataclass(frozen=True)
class SourceState:
    """A source at the snapshot that was read; None if it had none. A renamed table keeps its UUID."""

    namespace: str
    table: str
    uuid: str
    snapshot_id: int | None
    is_base: bool = True
    """False for a dynamic table."""
    schema_id: int | None = None
    """The schema of the source by which it was read."""


@dataclass(frozen=True)
class RefreshState:
    """The sources of one refresh."""

    pass_id: str
    definition: str
    """The definition that the rows were computed by; a changed definition has another."""
    refreshed_ms: int
    """When the sources were pinned."""
    sources: tuple[SourceState, ...]
    """The query's own sources, in their order."""
    bases: tuple[SourceState, ...] = ()
    """The base tables of those that are dynamic tables, unless the query reads them, too."""

    @property
    def all(self) -> tuple[SourceState, ...]:
        return self.sources + self.bases

    @property
    def snapshots(self) -> dict[str, int | None]:
        """The snapshot of each source and base table, by UUID."""
        return {one.uuid: one.snapshot_id for one in self.all}

    def text(self, tenant: str) -> str:
        """As JSON, for the summary of a snapshot of the tenant's table."""
        return json.dumps(
            {
                "view-version-id": _number(self.definition),
                "refresh-start-timestamp-ms": self.refreshed_ms,
                "source-states": [
                    *(_source_json(one, tenant, "source") for one in self.sources),
                    *(_source_json(one, tenant, "base") for one in self.bases),
                ],
                "firn-pass": self.pass_id,
                "firn-definition": self.definition,
            },
            separators=(",", ":"),
        )


def state_of(summary: Mapping[str, str]) -> RefreshState | None:
    """The refresh state in the summary of a snapshot; None if there is none, or not one of ours."""
    try:
        stored = json.loads(summary[REFRESH_STATE_PROPERTY])
        every = [(one["firn-role"], _source(one)) for one in stored["source-states"]]
        return RefreshState(
            stored["firn-pass"],
            stored["firn-definition"],
            stored["refresh-start-timestamp-ms"],
            tuple(one for role, one in every if role == "source"),
            tuple(one for role, one in every if role == "base"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _source_json(one: SourceState, tenant: str, role: str) -> dict[str, Any]:
    namespace, table = TableName(tenant, one.namespace, one.table).identifier
    return {
        "type": "table",
        "namespace": [namespace],
        "name": table,
        "uuid": one.uuid,
        "snapshot-id": _NO_SNAPSHOT if one.snapshot_id is None else one.snapshot_id,
        "firn-role": role,
        "firn-dynamic": not one.is_base,
        "firn-schema-id": one.schema_id,
    }


def _source(stored: Mapping[str, Any]) -> SourceState:
    named, table = decode_namespace(stored["namespace"][0]), decode(stored["name"])
    if named is None or table is None:
        raise ValueError(stored)
    snapshot_id = stored["snapshot-id"]
    return SourceState(
        named[1],
        table,
        stored["uuid"],
        None if snapshot_id == _NO_SNAPSHOT else snapshot_id,
        not stored["firn-dynamic"],
        stored["firn-schema-id"],
    )


def _number(definition: str) -> int:
    """A version of a definition as the number that the specification asks for."""
    return int(definition) if definition.isdecimal() and len(definition) <= 9 else zlib.crc32(definition.encode())
