"""Whose rights count for dynamic tables: a refresh has those of the table's creator, and a response names only tables
that its reader may read."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from service.dynamic.definitions import Definitions
from service.dynamic.graph import Graph
from service.errors import Cancelled, DeadlineExceeded, FirnError, Forbidden, InternalError, NotFound
from service.ledger.dynamic_tables import DynamicTable
from service.model.dynamic.definition import Definition, DynamicSource
from service.model.dynamic.state import SourceState
from service.model.identity.principal import ANYONE, Principal, Role
from service.model.names import TableName

_HIDDEN = "you may not read all tables that it depends on, so the message, which may name them, is not shown"
_AGAIN = "send CREATE_DYNAMIC_TABLE with replace: true, with a credential that has these rights"
# Their messages name no table, or none that its reader has not named.
_WITHOUT_NAMES = (Cancelled, DeadlineExceeded, Forbidden, InternalError)


@dataclass(frozen=True)
class Creators:
    """The creators of dynamic tables, with the rights that they have now."""

    of_owner: Callable[[str | None], Principal] = lambda owner: ANYONE
    check_may_publish: Callable[[Principal, DynamicSource], None] = lambda creator, source: None
    """Raises Forbidden if a policy protects a source, and somebody is not an administrator of it."""

    def check(self, definition: Definition) -> None:
        """Raise Forbidden if the creator may not read the sources, or not change the table, any more. The message
        names no table, because those who may read the result need not be allowed to read its sources."""
        creator, name = self.of_owner(definition.owner), definition.name
        lost = None
        if not _may(creator, name, "writer"):
            lost = "has the role writer in its namespace no longer"
        elif not all(_may(creator, source.name) for source in definition.sources):
            lost = "may not read all tables of its query any more"
        elif not all(self._may_publish(creator, source) for source in definition.sources):
            lost = "is not an administrator of all tables of its query that are protected by a policy"
        if lost is not None and definition.owner is None:
            lost = "is not known: it was created without authentication"
        if lost is not None:
            raise Forbidden(
                f"{name.table} is refreshed with the rights of its creator, who {lost}; restore them, or {_AGAIN}"
            )

    def _may_publish(self, creator: Principal, source: DynamicSource) -> bool:
        try:
            self.check_may_publish(creator, source)
        except Forbidden:
            return False
        except NotFound:  # the refresh says so
            return True
        return True


@dataclass(frozen=True)
class Sight:
    """What somebody sees of dynamic tables, and of what these depend on."""

    principal: Principal
    definitions: Definitions

    def sees(self, name: TableName) -> bool:
        """Whether a table may be named."""
        return _may(self.principal, name)

    def tables(self, tables: Iterable[DynamicTable]) -> list[DynamicTable]:
        return [one for one in tables if self.sees(one.name)]

    def sources(self, tenant: str, sources: Iterable[SourceState]) -> list[SourceState]:
        return [one for one in sources if self.sees(TableName(tenant, one.namespace, one.table))]

    def sees_sources(self, definition: Definition) -> bool:
        """Whether the query, which names its sources, may be shown; not if a policy hides rows of one, as messages
        about it can quote rows."""
        whole = self.definitions.policies.sees_whole
        return all(self.sees(one.name) and whole(self.principal, one.name, one.uuid) for one in definition.sources)

    def sees_all(self, definition: Definition) -> bool:
        """Whether every table on which a dynamic one depends may be named."""
        if self.principal.may("admin", definition.name.tenant):
            return True
        if not self.sees_sources(definition):
            return False
        dynamic = [source.uuid for source in definition.sources if source.uuid in self._graph.tables]
        return all(self.sees_sources(one.definition) for one in self._graph.upstream(dynamic))

    def error(self, definition: Definition, error: FirnError) -> FirnError:
        """How a refresh failed, without a message that may name other tables."""
        if isinstance(error, _WITHOUT_NAMES) or self.sees_all(definition):
            return error
        shown = copy(error)
        shown.message, shown.suggestion, shown.details = _HIDDEN, None, None
        return shown

    def message(self, definition: Definition, message: str | None, code: str | None = None) -> str | None:
        """The message of a failure with this code, or why a table was held back."""
        if message is None or code in [kind.code for kind in _WITHOUT_NAMES] or self.sees_all(definition):
            return message
        return _HIDDEN

    def reason(self, table: DynamicTable) -> str | None:
        """Why a table is in its state: what ALTER_DYNAMIC_TABLE said, or the code and the message of a failure."""
        if table.reason is None or table.state == "suspended":
            return table.reason
        code, _, message = table.reason.partition(": ")
        return f"{code}: {self.message(table.definition, message, code)}"

    @cached_property
    def _graph(self) -> Graph:
        return self.definitions.graph()


def _may(principal: Principal, name: TableName, role: Role = "reader") -> bool:
    return principal.may(role, name.tenant, name.namespace)
