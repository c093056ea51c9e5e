"""The policies of tables: what the sender of a request sees of a table, and what it may not do because that is less
than all of it.

Every path to rows goes through here: operations that show rows take a `RowView` from `Policies.view`, and all others
that could show or change some are refused by `Policies.check_whole`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from service.catalog.lineage import current_names
from service.catalog.tables import Catalog, Table
from service.errors import Forbidden, NotFound, TableNotFound
from service.model.filters.attributes import AttributeValues
from service.model.identity.principal import LOCAL, Principal
from service.model.ingest.reserved import QUARANTINE_OF_PROPERTY, quarantined_name
from service.model.names import TableName
from service.model.policy.policy import POLICY_PROPERTY, TablePolicy, read_policy
from service.model.policy.view import BROKEN, NOT_THEN, RowView, State, view_of
from service.model.schema.types import TableSchema

_KEPT_S = 1.0
_MOST_KEPT = 10_000
_WHOLE = (
    "a policy shows you only a part of this table's rows or columns: QUERY, DIFF and EXPORT return that part, and dry "
    "runs of edits preview it, but you cannot use the table {what}; ask an administrator of the table"
)
_NO_COLUMN = "a policy shows you no column of this table, so there is nothing to show; ask an administrator of it"
_REJECTS = (
    "this table has the rows that a table with a policy rejected, and the policy says nothing about them; only an "
    "administrator may use it"
)


def sees_all(principal: Principal, name: TableName) -> bool:
    """Whether no policy of a table can bind somebody: its administrators, everybody while authentication is off, and
    Firn itself."""
    return principal.may("admin", name.tenant, name.namespace) or principal.credential == LOCAL.credential


def has_policy(table: Table) -> bool:
    return POLICY_PROPERTY in table.properties


def policy_of(table: Table) -> TablePolicy | None:
    """The policy of a table; Forbidden if another program made it unreadable."""
    text = table.properties.get(POLICY_PROPERTY)
    if text is None:
        return None
    found = read_policy(text)
    if found is None:
        raise Forbidden(BROKEN, field="table")
    return found


class Policies:
    """Finds the policies of tables and applies them to senders."""

    def __init__(self, catalog: Catalog, now: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._now = now
        self._lock = threading.Lock()
        self._without: dict[TableName, float] = {}
        """Tables that had no policy, and until when that is taken for granted."""

    def view(
        self, principal: Principal, table: Table, schema: TableSchema | None = None, schema_id: int | None = None
    ) -> RowView | None:
        """What somebody sees of a table; None for all of it. Forbidden if a policy does not let it be shown at all.

        `schema` and its id are those of the state that is read, if it is not the current one.
        """
        if sees_all(principal, table.name):
            return None
        if self._holds_rejects_of_protected(table):
            raise Forbidden(_REJECTS, field="table")
        policy = policy_of(table)
        if policy is None:
            return None
        place = table.name.tenant, table.name.namespace
        state = _state(table, schema, schema_id)
        attributes = AttributeValues(principal.attributes_in(*place))
        return view_of(policy, principal.roles_in(*place), attributes, table.schema, state)

    def shown(self, principal: Principal, table: Table) -> Table:
        """A table as somebody sees it now; Forbidden if they see no column of it."""
        view = self.view(principal, table)
        if view is None:
            return table
        if not view.schema.fields:
            raise Forbidden(_NO_COLUMN, field="table")
        return replace(table, view=view)

    def is_bound(self, principal: Principal, name: TableName) -> bool:
        """Whether somebody sees less than all of a table, or it cannot be found out; false if there is no table."""
        try:
            self.check_whole(principal, name)
        except Forbidden:
            return True
        return False

    def sees_whole(self, principal: Principal, name: TableName, uuid: str = "") -> bool:
        """Whether somebody sees all of a table: what was recorded about it can name columns and quote rows. False if
        there is no such table now, or it has another UUID than the given one."""
        if sees_all(principal, name):
            return True
        try:
            table = self._catalog.load(name)
            self.check_whole_table(principal, table)
        except (Forbidden, NotFound):
            return False
        return uuid in ("", table.uuid)

    def check_whole(self, principal: Principal, name: TableName, what: str = "in this way") -> None:
        """Raise Forbidden if somebody sees less than all of a table. Nothing, if there is no such table."""
        if sees_all(principal, name):
            return
        try:
            table = self._catalog.load(name)
        except TableNotFound:
            return
        self.check_whole_table(principal, table, what)
        if not has_policy(table) and QUARANTINE_OF_PROPERTY not in table.properties:
            with self._lock:
                if len(self._without) > _MOST_KEPT:
                    self._without.clear()
                self._without[name] = self._now() + _KEPT_S

    def check_whole_table(self, principal: Principal, table: Table, what: str = "in this way") -> None:
        if self.view(principal, table) is not None:
            raise Forbidden(_WHOLE.format(what=what), field="table")

    def had_none(self, name: TableName) -> bool:
        """Whether a table had no policy within the last second, for changes, which must not wait for metadata."""
        with self._lock:
            return self._without.get(name, 0) > self._now()

    def changed(self, name: TableName) -> None:
        """The policy of a table was changed here."""
        with self._lock:
            self._without.pop(name, None)

    def check_may_publish(self, principal: Principal, table: Table, field: str) -> None:
        """Raise Forbidden if somebody may not make a dynamic table of another one, whose rows it shows to all its
        readers."""
        if not sees_all(principal, table.name) and (has_policy(table) or self._holds_rejects_of_protected(table)):
            raise Forbidden(
                f"{table.name.table!r} is protected by a policy, which its dynamic tables do not inherit; only an "
                "administrator of its namespace may create and refresh one",
                field=field,
            )

    def _holds_rejects_of_protected(self, table: Table) -> bool:
        """Whether a table has the rows that a table with a policy has rejected. The policy says nothing about these."""
        of = table.properties.get(QUARANTINE_OF_PROPERTY)
        if of is None:
            return False
        name = quarantined_name(table.name)
        try:
            rejecting = self._catalog.load(name) if name else None
        except TableNotFound:
            rejecting = None
        # Without its table nobody can tell whether there was a policy.
        return rejecting is None or rejecting.uuid != of or has_policy(rejecting)


def _state(table: Table, schema: TableSchema | None, schema_id: int | None) -> State:
    if schema is None or schema_id == table.schema_id:
        return State.of_now(table.schema)
    names = current_names(table, schema_id) if schema_id is not None else None
    if names is None:
        raise Forbidden(NOT_THEN, field="table")
    return State(schema, names)
