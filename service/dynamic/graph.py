"""Which dynamic tables read which tables: a graph without cycles, over base tables and dynamic ones."""

from collections.abc import Callable, Collection, Iterable
from graphlib import TopologicalSorter

from service.ledger.dynamic_tables import DynamicTable
from service.model.dynamic.definition import DynamicSource


class Graph:
    """Dynamic tables and what they read, by the UUIDs of tables."""

    def __init__(self, tables: Iterable[DynamicTable]) -> None:
        self.tables = {one.uuid: one for one in tables}
        self._readers: dict[str, list[str]] = {}
        for one in self.tables.values():
            for source in {source.uuid for source in one.definition.sources}:
                self._readers.setdefault(source, []).append(one.uuid)

    def sources(self, table_uuid: str) -> list[DynamicTable]:
        """The dynamic tables that a dynamic table reads itself, in the order of its query."""
        return [self.tables[uuid] for uuid in self._dynamic_sources(table_uuid)]

    def upstream(self, table_uuids: Collection[str]) -> list[DynamicTable]:
        """These dynamic tables and all that they depend on, each after its sources."""
        return self._ordered(self._reached(table_uuids, self._dynamic_sources))

    def downstream(self, table_uuids: Collection[str]) -> list[DynamicTable]:
        """All dynamic tables that depend on these tables, and those of these that are dynamic, each after its
        sources."""
        reached = self._reached(table_uuids, lambda uuid: self._readers.get(uuid, ()))
        return self._ordered([uuid for uuid in reached if uuid in self.tables])

    def base_tables(self, table_uuids: Collection[str]) -> list[DynamicSource]:
        """The base tables that these dynamic tables depend on, each once."""
        found = {
            source.uuid: source
            for one in self.upstream(table_uuids)
            for source in one.definition.sources
            if source.uuid not in self.tables
        }
        return list(found.values())

    def path(self, source_uuid: str, table_uuid: str) -> list[str]:
        """The UUIDs on a shortest way from a table to a dynamic one that depends on it; empty if it does not."""
        ways = [[source_uuid]]
        seen = {source_uuid}
        for way in ways:
            if way[-1] == table_uuid:
                return way
            new = [uuid for uuid in self._readers.get(way[-1], ()) if uuid not in seen]
            seen.update(new)
            ways.extend([*way, uuid] for uuid in new)
        return []

    def _dynamic_sources(self, table_uuid: str) -> list[str]:
        found = dict.fromkeys(source.uuid for source in self.tables[table_uuid].definition.sources)
        return [uuid for uuid in found if uuid in self.tables]

    def _reached(self, starts: Collection[str], following: Callable[[str], Iterable[str]]) -> list[str]:
        reached = list(dict.fromkeys(starts))
        seen = set(reached)
        for uuid in reached:
            new = [one for one in following(uuid) if one not in seen]
            seen.update(new)
            reached.extend(new)
        return reached

    def _ordered(self, table_uuids: Iterable[str]) -> list[DynamicTable]:
        among = dict.fromkeys(table_uuids)
        edges = {uuid: [one for one in self._dynamic_sources(uuid) if one in among] for uuid in among}
        return [self.tables[uuid] for uuid in TopologicalSorter(edges).static_order()]
