"""From the text of a query to its sources, its columns and its plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.catalog.tables import Table
from service.dynamic.query.compiled import CompiledQuery
from service.model.dynamic.definition import Definition
from service.model.names import TableName
from service.model.schema.types import TableSchema


@dataclass(frozen=True)
class Compiled:
    """A query over tables as they are now."""

    query: CompiledQuery
    sources: tuple[Table, ...]
    """In the order of the query's sources."""
    schema: TableSchema
    """The columns of the result, with the hidden ones."""


class Compiler(Protocol):
    """Reads queries; one for the whole service."""

    def compile(self, name: TableName, query: str, sources: Sequence[Table] | None = None) -> Compiled:
        """A query of the dynamic table `name`, which gives the tenant and the namespace of names without one.

        `sources` are the tables it reads, if they are known by other names than those in the query.
        """

    def compile_definition(self, definition: Definition) -> Compiled:
        """The query of a definition; raises TableNotFound if a source was dropped."""
