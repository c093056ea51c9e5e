"""The refusals of the catalog: what is missing or in the way, with the names that exist."""

from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata

from service.errors import (
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableExists,
    TableNotFound,
    did_you_mean,
)
from service.model.names import TableName
from service.model.times import utc

LISTED = 10


def table_not_found(name: TableName, known: Sequence[str]) -> TableNotFound:
    """`known` are the tables of its namespace."""
    near, hint = did_you_mean(name.table, known, it_has(known, "it has no tables yet; create one with CREATE_TABLE"))
    return TableNotFound(
        f"there is no table {name.table!r} in namespace {name.namespace!r} of tenant {name.tenant!r}; {hint}",
        field="table",
        suggestion=near,
    )


def table_replaced(name: TableName) -> TableNotFound:
    return TableNotFound(
        f"table {name.table!r} was dropped and created again in the meantime; send the request again", field="table"
    )


def table_exists(name: TableName) -> TableExists:
    return TableExists(
        f"table {name.table!r} already exists in namespace {name.namespace!r}; "
        "choose another name, drop it, or send if_not_exists: true",
        field="table",
    )


def namespace_not_found(tenant: str, namespace: str, known: Sequence[str]) -> NamespaceNotFound:
    """`known` are the tenant's namespaces."""
    near, hint = did_you_mean(namespace, known, it_has(known, "it has none yet"))
    missing = f"tenant {tenant!r} has no namespace {namespace!r}"
    error = NamespaceNotFound(f"{missing}; {hint}", field="namespace", suggestion=near)
    # A sender with a role in this namespace alone must not see the names of the others.
    error.without_names = f"{missing}; create it with CREATE_NAMESPACE, or create a table in it"
    return error


def namespace_exists_already(namespace: str) -> NamespaceExists:
    return NamespaceExists(
        f"namespace {namespace!r} exists already; choose another name, or send if_not_exists: true", field="namespace"
    )


def namespace_not_empty(namespace: str, tables: Sequence[str]) -> NamespaceNotEmpty:
    if not tables:  # no request can name what is there
        return NamespaceNotEmpty(
            f"namespace {namespace!r} holds something that another program created; remove that first",
            field="namespace",
        )
    listed = ", ".join(tables[:LISTED]) + (f" and {len(tables) - LISTED} more" if len(tables) > LISTED else "")
    return NamespaceNotEmpty(
        f"namespace {namespace!r} is not empty: it holds {listed}; drop these first",
        field="namespace",
        details={"tables": tables[:LISTED], "count": len(tables)},
    )


def oldest_snapshot(metadata: TableMetadata) -> str:
    """Which snapshot is the oldest that can still be read, in words."""
    if not metadata.snapshots:
        return "it has no commits yet"
    first = min(metadata.snapshots, key=lambda s: s.sequence_number or 0)
    made = utc(first.timestamp_ms // 1000 * 1000).isoformat().replace("+00:00", "Z")
    return f"its oldest snapshot is {first.snapshot_id}, of {made}"


def it_has(known: Sequence[str], if_none: str) -> str:
    return f"it has {', '.join(known[:LISTED])}" if known else if_none
