"""Dynamic tables in the ledger: their definitions, their states, the tables they read, and their refreshes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from service.ledger.database import follows, insert_new, parts
from service.ledger.ledger import Ledger, Transaction
from service.ledger.schema import dynamic_cursors, dynamic_refreshes, dynamic_sources, dynamic_tables, places
from service.model.dynamic.definition import Definition, TableState, read_definition
from service.model.dynamic.plan import RefreshMode
from service.model.dynamic.state import SourceState
from service.model.names import TableName
from service.model.times import now_ms

# So many refreshes of each table are kept.
_REFRESHES_KEPT = 2000
IS_HERE = dynamic_tables.c.table_uuid.not_in(select(places.c.table_uuid).where(places.c.state == "dropped"))
"""The condition that a dynamic table is not dropped."""
RefreshOutcome = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class DynamicTable:
    """A dynamic table as the ledger knows it; the names of its sources are those that they have now."""

    definition: Definition
    state: TableState = "active"
    reason: str | None = None
    """Why it is suspended or has failed, or how its last refresh failed."""
    failures: int = 0
    """The refreshes that failed since the last one that did not."""
    retry_ms: int | None = None
    """When the worker may try again, after a failure."""
    refreshed_ms: int | None = None
    """The time for which its rows are right; None until its first refresh."""
    created_ms: int = 0

    @property
    def name(self) -> TableName:
        return self.definition.name

    @property
    def uuid(self) -> str:
        return self.definition.uuid


@dataclass(frozen=True)
class RefreshRecord:
    """A refresh of a dynamic table."""

    id: str
    pass_id: str
    table: TableName
    table_uuid: str
    version: str
    """Of the definition."""
    state: RefreshOutcome = "running"
    mode: RefreshMode | None = None
    """None until it is decided."""
    reason: str | None = None
    """A stable code."""
    rows_added: int = 0
    rows_removed: int = 0
    rows_unchanged: int | None = None
    """Of those that were computed."""
    changed_rows: int = 0
    """Of all sources."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else was measured."""
    sources: tuple[SourceState, ...] = ()
    snapshot_id: int | None = None
    error_code: str | None = None
    error: str | None = None
    requested_by: str = ""
    pinned_ms: int = 0
    """When the snapshots of its sources were pinned."""
    started_ms: int = 0
    ended_ms: int | None = None


@dataclass(frozen=True)
class RefreshFilter:
    """Which refreshes; None for any."""

    namespace: str | None = None
    table: str | None = None
    state: RefreshOutcome | None = None
    since_ms: int | None = None
    pass_id: str | None = None


class DynamicTableRecords:
    """The tables `dynamic_tables`, `dynamic_sources` and `dynamic_refreshes` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def put(self, definition: Definition, *, retry_ms: int | None = None) -> None:
        """Record the definition of a new table, or another one of a known table. The worker leaves a new one alone
        until `retry_ms`.

        A table that had failed by another query, or with the rights of another creator, becomes active.
        """
        values: dict[str, Any] = {**_place(definition.name), "definition": definition.text}
        with self._ledger._writing() as connection:
            this = dynamic_tables.c.table_uuid == definition.uuid
            known = connection.execute(select(dynamic_tables).where(this).with_for_update()).one_or_none()
            if known is None:
                fresh = {"table_uuid": definition.uuid, "state": "active", "failures": 0, "created_ms": now_ms()}
                fresh["retry_ms"] = retry_ms
                connection.execute(insert_new(connection, dynamic_tables).values(**fresh, **values))
            else:
                before = json.loads(known.definition)
                if (before["version"], before.get("owner")) != (definition.version, definition.owner):
                    state = "active" if known.state == "failed" else known.state
                    reason = known.reason if state == "suspended" else None
                    values |= {"state": state, "reason": reason, "failures": 0, "retry_ms": None}
                connection.execute(update(dynamic_tables).where(this).values(**values))
            connection.execute(delete(dynamic_sources).where(dynamic_sources.c.table_uuid == definition.uuid))
            rows = [
                {"table_uuid": definition.uuid, "number": number, "source_uuid": one.uuid, **_place(one.name)}
                for number, one in enumerate(definition.sources)
            ]
            if rows:
                connection.execute(insert(dynamic_sources), rows)

    def find(self, table_uuid: str) -> DynamicTable | None:
        """The dynamic table of a UUID, dropped or not."""
        return next(iter(self._found(dynamic_tables.c.table_uuid == table_uuid)), None)

    def all(self) -> list[DynamicTable]:
        """Every dynamic table that is not dropped."""
        return self._found(IS_HERE)

    def of_tenant(
        self,
        tenant: str,
        namespace: str | None = None,
        *,
        state: TableState | None = None,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[DynamicTable]:
        """A tenant's dynamic tables, or those of a namespace, by namespace and name: those after one of them."""
        columns = dynamic_tables.c
        where = [columns.tenant == tenant, IS_HERE]
        if state is not None:
            where.append(columns.state == state)
        if namespace is not None:
            where.append(columns.namespace == namespace)
        if after is not None:
            later = (columns.namespace == after[0]) & (columns.table_name > after[1])
            where.append((columns.namespace > after[0]) | later)
        return self._found(*where, limit=limit)

    def names(self, tenant: str, namespace: str) -> list[str]:
        """The names of a namespace's dynamic tables."""
        columns = dynamic_tables.c
        found = select(columns.table_name).where(columns.tenant == tenant, columns.namespace == namespace, IS_HERE)
        return [row.table_name for row in self._ledger.rows(found.order_by(columns.table_name))]

    def readers(self, source_uuids: Iterable[str]) -> list[DynamicTable]:
        """The dynamic tables that read one of these tables themselves, and are not dropped."""
        found: dict[str, DynamicTable] = {}
        for some in parts(sorted(set(source_uuids))):
            reads = select(dynamic_sources.c.table_uuid).where(dynamic_sources.c.source_uuid.in_(some))
            found |= {one.uuid: one for one in self._found(dynamic_tables.c.table_uuid.in_(reads), IS_HERE)}
        return sorted(found.values(), key=lambda one: (one.name.namespace, one.name.table))

    def set_state(self, table_uuid: str, state: TableState, reason: str | None = None) -> None:
        """Suspend a table, or let it be refreshed again; then earlier failures no longer count."""
        values: dict[str, Any] = {"state": state, "reason": reason}
        if state == "active":
            values |= {"failures": 0, "retry_ms": None}
        with self._ledger._writing() as connection:
            connection.execute(update(dynamic_tables).where(dynamic_tables.c.table_uuid == table_uuid).values(**values))

    def refreshed(self, table_uuid: str, pinned_ms: int, within: Transaction | None = None) -> None:
        """Record that the rows are those for the sources of a time; a table that had failed is active again."""
        later = (dynamic_tables.c.refreshed_ms.is_(None)) | (dynamic_tables.c.refreshed_ms <= pinned_ms)
        this = dynamic_tables.c.table_uuid == table_uuid
        with self._ledger._writing(within) as connection:
            ok = {"failures": 0, "retry_ms": None, "refreshed_ms": pinned_ms}
            connection.execute(update(dynamic_tables).where(this, later).values(**ok))
            not_suspended = dynamic_tables.c.state != "suspended"
            connection.execute(update(dynamic_tables).where(this, not_suspended).values(state="active", reason=None))

    def still_right(self, table_uuids: Sequence[str], at_ms: int) -> None:
        """Record that the rows of tables are those for a later time, too, because no row of their sources changed."""
        with self._ledger._writing() as connection:
            for some in parts(table_uuids):
                these = (dynamic_tables.c.table_uuid.in_(some), dynamic_tables.c.refreshed_ms < at_ms)
                connection.execute(update(dynamic_tables).where(*these).values(refreshed_ms=at_ms))

    def failed(
        self, table_uuid: str, reason: str, retry_ms: int | None, *, counts: bool = True, state: TableState = "active"
    ) -> None:
        """Record a failed refresh of a table that is not suspended; `state="failed"` stops further attempts.

        A failure that will pass by itself does not count.
        """
        this = dynamic_tables.c.table_uuid == table_uuid
        with self._ledger._writing() as connection:
            failures = dynamic_tables.c.failures + int(counts)
            more = {"failures": failures, "reason": reason, "retry_ms": retry_ms, "state": state}
            connection.execute(update(dynamic_tables).where(this, dynamic_tables.c.state != "suspended").values(**more))

    def delete(self, table_uuid: str) -> None:
        """Delete what is recorded of a table that was never built."""
        with self._ledger._writing() as connection:
            forget_dynamic_table(connection, table_uuid)

    def put_refresh(self, done: RefreshRecord, within: Transaction | None = None) -> None:
        """Record a refresh that starts, or how it ended; deletes the oldest ones of its table."""
        values = {
            name: value for name, value in vars(done).items() if name not in ("id", "table", "sources", "details")
        }
        values |= _place(done.table)
        values["sources"] = json.dumps([asdict(one) for one in done.sources])
        values["details"] = json.dumps(dict(done.details), default=str)
        columns = dynamic_refreshes.c
        with self._ledger._writing(within) as connection:
            new = insert_new(connection, dynamic_refreshes).values(id=done.id, **values)
            connection.execute(new.on_conflict_do_update(index_elements=[columns.id], set_=values))
            of_it = columns.table_uuid == done.table_uuid
            newest_first = (columns.started_ms.desc(), columns.id)
            old = select(columns.id).where(of_it).order_by(*newest_first).offset(_REFRESHES_KEPT).limit(100)
            connection.execute(delete(dynamic_refreshes).where(columns.id.in_(old)))

    def forget_refresh(self, refresh_id: str) -> None:
        """Delete the record of a refresh that turned out to be needless."""
        with self._ledger._writing() as connection:
            connection.execute(delete(dynamic_refreshes).where(dynamic_refreshes.c.id == refresh_id))

    def refreshes_of(self, table_uuid: str, limit: int, *, state: RefreshOutcome | None = None) -> list[RefreshRecord]:
        """The latest refreshes of a table, newest first."""
        where = [dynamic_refreshes.c.table_uuid == table_uuid]
        if state is not None:
            where.append(dynamic_refreshes.c.state == state)
        return self._refreshes(where, limit)

    def last_modes(self, table_uuids: Sequence[str]) -> dict[str, str]:
        """The modes of the last refreshes of tables that did not fail, by UUID."""
        columns, found = dynamic_refreshes.c, dict[str, str]()
        newest_first = func.row_number().over(partition_by=columns.table_uuid, order_by=columns.started_ms.desc())
        for some in parts(table_uuids):
            done = (columns.table_uuid.in_(some), columns.state == "done")
            ranked = select(columns.table_uuid, columns.mode, newest_first.label("rank")).where(*done).subquery()
            rows = self._ledger.rows(select(ranked).where(ranked.c.rank == 1))
            found |= {row.table_uuid: row.mode for row in rows if row.mode is not None}
        return found

    def refreshes(
        self, tenant: str, which: RefreshFilter, after: tuple[int, str] | None = None, limit: int | None = None
    ) -> list[RefreshRecord]:
        """A tenant's refreshes, newest first: those after a start and an id. A table is named as it is called now."""
        columns = dynamic_refreshes.c
        named = {
            "namespace": which.namespace,
            "table_name": which.table,
            "state": which.state,
            "pass_id": which.pass_id,
        }
        where = [columns.tenant == tenant]
        where += [columns[name] == value for name, value in named.items() if value is not None]
        if which.since_ms is not None:
            where.append(columns.started_ms >= which.since_ms)
        if after is not None:
            where.append(follows(after, columns.started_ms, columns.id))
        return self._refreshes(where, limit)

    def _refreshes(self, where: Sequence[ColumnElement[bool]], limit: int | None) -> list[RefreshRecord]:
        columns = dynamic_refreshes.c
        found = select(dynamic_refreshes).where(*where).order_by(columns.started_ms.desc(), columns.id).limit(limit)
        return [_refresh(row) for row in self._ledger.rows(found)]

    def _found(self, *where: ColumnElement[bool], limit: int | None = None) -> list[DynamicTable]:
        columns = dynamic_tables.c
        wanted = select(dynamic_tables).where(*where)
        wanted = wanted.order_by(columns.tenant, columns.namespace, columns.table_name, columns.table_uuid).limit(limit)
        rows = self._ledger.rows(wanted)
        names: dict[tuple[str, int], TableName] = {}
        for some in parts([row.table_uuid for row in rows]):
            for one in self._ledger.rows(select(dynamic_sources).where(dynamic_sources.c.table_uuid.in_(some))):
                names[one.table_uuid, one.number] = TableName(one.tenant, one.namespace, one.table_name)
        return [_dynamic_table(row, names) for row in rows]


def follow_renamed(connection: Connection, table_uuid: str, to: str) -> None:
    """Give what is recorded of dynamic tables the new name of a table, whether it is one or is read by one."""
    for kept, column in (
        (dynamic_tables, dynamic_tables.c.table_uuid),
        (dynamic_refreshes, dynamic_refreshes.c.table_uuid),
        (dynamic_sources, dynamic_sources.c.source_uuid),
    ):
        connection.execute(update(kept).where(column == table_uuid).values(table_name=to))


def forget_dynamic_table(connection: Connection, table_uuid: str) -> None:
    """Delete what is recorded of a dynamic table whose files are removed."""
    for kept in (dynamic_tables, dynamic_sources, dynamic_cursors, dynamic_refreshes):
        connection.execute(delete(kept).where(kept.c.table_uuid == table_uuid))


def _place(name: TableName) -> dict[str, str]:
    return {"tenant": name.tenant, "namespace": name.namespace, "table_name": name.table}


def _dynamic_table(row: Row[Any], names: Mapping[tuple[str, int], TableName]) -> DynamicTable:
    name = TableName(row.tenant, row.namespace, row.table_name)
    declared = read_definition(name, row.table_uuid, row.definition)
    sources = tuple(
        replace(one, name=names.get((row.table_uuid, number), one.name)) for number, one in enumerate(declared.sources)
    )
    return DynamicTable(
        replace(declared, sources=sources),
        cast("TableState", row.state),
        row.reason,
        row.failures,
        row.retry_ms,
        row.refreshed_ms,
        row.created_ms,
    )


def _refresh(row: Row[Any]) -> RefreshRecord:
    values = dict(row._mapping)
    table = TableName(values.pop("tenant"), values.pop("namespace"), values.pop("table_name"))
    sources = tuple(SourceState(**one) for one in json.loads(values.pop("sources")))
    return RefreshRecord(table=table, sources=sources, details=json.loads(values.pop("details")), **values)
