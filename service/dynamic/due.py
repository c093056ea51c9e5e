"""Which dynamic tables are due, and in which order: pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from service.dynamic.freshness import MissingChanges
from service.dynamic.graph import Graph
from service.ledger.dynamic_tables import DynamicTable
from service.model.names import TableName

# A change may wait for others for this part of the target lag; the rest is for the refresh.
_MAY_WAIT = 0.5


@dataclass(frozen=True)
class DueTable:
    """A dynamic table to refresh; the most urgent one has the greatest number."""

    table: DynamicTable
    urgency: float
    """How old its oldest missing change will be after a refresh, as a part of its target lag."""


def target_lag_s(graph: Graph, table: DynamicTable) -> float | None:
    """The target lag of a table; for `downstream` the shortest of those that depend on it, or None if none does."""
    own = table.definition.options.target_lag_s
    if own is not None:
        return own
    found = [
        one.definition.options.target_lag_s
        for one in graph.downstream([table.uuid])
        if one.definition.options.target_lag_s is not None and one.definition.options.scheduled
    ]
    return min(found, default=None)


def urgency(missing: MissingChanges | None, lag_s: float, expected_s: float, now_ms: int) -> float | None:
    """How urgent a refresh is; None if it is not due. A table that was never built, and one whose sources were only
    rewritten, are due at once, the latter after all others."""
    if missing is None:
        return 1.0
    if missing.since_ms is None:
        return 0.0 if missing.rewritten else None
    age_s = max(0.0, (now_ms - missing.since_ms) / 1000)
    return (age_s + expected_s) / lag_s if age_s + expected_s >= _MAY_WAIT * lag_s else None


def in_groups(graph: Graph, due: Iterable[DueTable]) -> list[list[DueTable]]:
    """The due tables that have dynamic tables in common among all that they depend on, together: one pass refreshes
    them. The group with the most urgent table comes first."""
    groups: list[tuple[set[str], list[DueTable]]] = []
    for one in sorted(due, key=lambda one: -one.urgency):
        reached = {table.uuid for table in graph.upstream([one.table.uuid])}
        members = [one]
        apart = []
        for group in groups:
            if group[0] & reached:
                reached |= group[0]
                members += group[1]
            else:
                apart.append(group)
        groups = [*apart, (reached, members)]
    ordered = [sorted(members, key=lambda one: -one.urgency) for _, members in groups]
    return sorted(ordered, key=lambda members: -members[0].urgency)


def reached(graph: Graph, members: Sequence[DueTable]) -> frozenset[str]:
    """All dynamic tables that a pass over a group refreshes."""
    return frozenset(table.uuid for table in graph.upstream([one.table.uuid for one in members]))


def matches(name: TableName, patterns: Collection[str]) -> bool:
    """Whether a table is one of `tenant.namespace.table` with `*` for any text."""
    return any(fnmatchcase(str(name), pattern) for pattern in patterns)
