"""Tables and their metadata, read in process: nothing here starts a Spark job."""

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.exceptions import TableAlreadyExistsError as IcebergTableExists
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from service.catalog import types
from service.catalog.files.folders import remove_folder
from service.catalog.refusals import oldest_snapshot, table_exists, table_not_found, table_replaced
from service.catalog.translate import translated
from service.errors import CommitConflict, SnapshotNotFound, TableNotFound
from service.model.dynamic.state import REFRESH_STATE_PROPERTY
from service.model.names import (
    BATCH_PROPERTY,
    CATALOG,
    FENCE_PROPERTY,
    RESERVED_COLUMN_PREFIX,
    TableName,
    decode,
    decode_namespace,
    namespace_identifier,
)
from service.model.policy.view import RowView
from service.model.properties import FORMAT_WITH_POSITIONS
from service.model.schema.derived import DerivedColumn, derived_of
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema, without_hidden_columns

_TRIES = 5
# A change of metadata depends on no other writer's commit, so it is tried until it succeeds.
_METADATA_TRIES = 200
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Snapshot:
    """One state of a table, with the summary of the commit that made it."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    schema: TableSchema
    summary: dict[str, str]
    schema_id: int | None = None
    sequence_number: int = 0
    """Later commits have greater numbers."""

    def counted(self, key: str) -> int:
        return int(self.summary.get(key, 0))

    @property
    def leaves_rows(self) -> bool:
        """Whether the commit left all rows as they were."""
        return leaves_rows(self.summary)


@dataclass(frozen=True)
class Table:
    """A table with its metadata as of the time it was loaded."""

    name: TableName
    iceberg: IcebergTable
    view: RowView | None = None
    """What a sender sees of it now, if that is not all. The table then has only these columns."""

    @property
    def uuid(self) -> str:
        return str(self.iceberg.metadata.table_uuid)

    @property
    def schema_id(self) -> int:
        return self.iceberg.metadata.current_schema_id

    @cached_property
    def schema(self) -> TableSchema:
        """The columns that requests can name and responses show."""
        return without_hidden_columns(self.stored_schema) if self.view is None else self.view.schema

    @cached_property
    def stored_schema(self) -> TableSchema:
        """All columns, Firn's internal ones included."""
        return types.from_iceberg(self.iceberg.schema())

    @cached_property
    def kept_schema(self) -> TableSchema:
        """The columns whose values a row keeps wherever it is written: also the internal ones that are not computed."""
        return TableSchema((*self.schema.fields, *self.schema.internal), self.schema.primary_key)

    @cached_property
    def partition(self) -> tuple[PartitionField, ...]:
        """The partition fields over columns that requests can name."""
        found = tuple(p for p in self.stored_partition if not p.field.startswith(RESERVED_COLUMN_PREFIX))
        return found if self.view is None else tuple(p for p in found if p.field in self.view.schema.names)

    @cached_property
    def stored_partition(self) -> tuple[PartitionField, ...]:
        return types.from_spec(self.iceberg.spec(), self.iceberg.schema())

    @property
    def hidden_partition(self) -> tuple[PartitionField, ...]:
        """The partition fields over Firn's internal columns."""
        return tuple(p for p in self.stored_partition if p.field.startswith(RESERVED_COLUMN_PREFIX))

    @property
    def spec_id(self) -> int:
        return self.iceberg.metadata.default_spec_id

    @property
    def past_partition(self) -> tuple[PartitionField, ...]:
        """The fields of every partitioning that the table has or had."""
        schema = self.iceberg.schema()
        return tuple(field for spec in self.iceberg.specs().values() for field in types.from_spec(spec, schema))

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.iceberg.properties)

    @cached_property
    def derived(self) -> tuple[DerivedColumn, ...]:
        """The columns that are computed for rows without a value."""
        found = derived_of(self.iceberg.properties, without_hidden_columns(self.stored_schema))
        if self.view is None:
            return found
        return tuple(one for one in found if {one.column, *one.expression.columns} <= self.view.unmasked)

    @property
    def deletes_by_place(self) -> bool:
        """Whether the table can have more delete files with positions."""
        return self.iceberg.metadata.format_version >= FORMAT_WITH_POSITIONS

    @property
    def location(self) -> str:
        return self.iceberg.location()

    @property
    def metadata_location(self) -> str:
        return self.iceberg.metadata_location

    @property
    def spark_name(self) -> str:
        """The table's name in Spark SQL. No part of it holds a backquote."""
        return ".".join(f"`{part}`" for part in (CATALOG, *self.name.identifier))

    @property
    def current_snapshot_id(self) -> int | None:
        return self.iceberg.metadata.current_snapshot_id

    @property
    def snapshot_count(self) -> int:
        return len(self.iceberg.metadata.snapshots)

    @property
    def head_has_table_schema(self) -> bool:
        """Whether reading the current snapshot by its id shows the table's current columns."""
        head = self.iceberg.current_snapshot()
        return head is not None and head.schema_id == self.iceberg.metadata.current_schema_id

    def snapshots(self) -> list[Snapshot]:
        return [self._snapshot(s) for s in self.iceberg.metadata.snapshots]

    def snapshot(self, snapshot_id: int, field: str = "as_of") -> Snapshot:
        """The snapshot with this id; SnapshotNotFound names the oldest one if it does not exist."""
        found = self.iceberg.snapshot_by_id(snapshot_id)
        if found is None:
            raise SnapshotNotFound(
                f"{self.name.table} has no snapshot {snapshot_id}; it may have expired; "
                f"{oldest_snapshot(self.iceberg.metadata)}",
                field=field,
            )
        return self._snapshot(found)

    def row_count(self, snapshot_id: int | None) -> int:
        """How many rows a snapshot has at most; rows that delete files delete count, too."""
        found = None if snapshot_id is None else self.iceberg.snapshot_by_id(snapshot_id)
        return 0 if found is None else int(summary_of(found).get("total-records", 0))

    def committed_by(self, batch: str) -> Snapshot | None:
        """The newest snapshot committed by a batch, on any branch."""
        stamped = (s for s in reversed(self.iceberg.metadata.snapshots) if summary_of(s).get(BATCH_PROPERTY) == batch)
        found = next(stamped, None)
        return self._snapshot(found) if found else None

    def _snapshot(self, found: IcebergSnapshot) -> Snapshot:
        schema = next(
            (s for s in self.iceberg.metadata.schemas if s.schema_id == found.schema_id), self.iceberg.schema()
        )
        return Snapshot(
            found.snapshot_id,
            found.parent_snapshot_id,
            found.timestamp_ms,
            without_hidden_columns(types.from_iceberg(schema)),
            summary_of(found),
            schema.schema_id,
            found.sequence_number or 0,
        )


class Catalog:
    """All of Firn's tables, by name."""

    def __init__(self, catalog: IcebergCatalog, warehouse: str) -> None:
        self._catalog = catalog
        self._warehouse = warehouse.rstrip("/")
        self._making_namespace = threading.Lock()

    def load(self, name: TableName) -> Table:
        with translated():
            try:
                return Table(name, self._catalog.load_table(name.identifier))
            except (NoSuchTableError, NoSuchNamespaceError):
                pass
        raise self._not_found(name)

    def list_tables(self, tenant: str, namespace: str) -> list[str]:
        with translated():
            try:
                found = self._catalog.list_tables((namespace_identifier(tenant, namespace),))
            except NoSuchNamespaceError:
                return []
        return sorted(name for name in (decode(identifier[-1]) for identifier in found) if name)

    def list_namespaces(self, tenant: str | None = None) -> list[tuple[str, str]]:
        """The tenant and name of each namespace; of one tenant, or of all."""
        with translated():
            found = self._catalog.list_namespaces()
        parts = (decode_namespace(identifier[-1]) for identifier in found)
        return sorted(part for part in parts if part and tenant in (None, part[0]))

    def create(
        self, name: TableName, schema: TableSchema, partition: tuple[PartitionField, ...], properties: dict[str, str]
    ) -> Table:
        """Create an empty table in a folder that no other table has or had."""
        namespace, _ = name.identifier
        iceberg_schema = types.to_iceberg(schema)
        location = self.new_location(name)
        with translated():
            if self._catalog.table_exists(name.identifier):
                raise table_exists(name)
            self.ensure_namespace(namespace)
            try:
                created = self._catalog.create_table(
                    name.identifier,
                    iceberg_schema,
                    location=location,
                    partition_spec=types.to_spec(partition, iceberg_schema),
                    properties=properties,
                )
            except IcebergTableExists as e:  # another writer was faster
                with suppress(Exception):  # at worst an orphan stays
                    self.remove_folder(location)
                raise table_exists(name) from e
        return Table(name, created)

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog, for this package only."""
        return self._catalog

    def ensure_namespace(self, namespace: str) -> bool:
        """Create a namespace if it does not exist; return whether it was created."""
        with self._making_namespace:
            if self._catalog.namespace_exists((namespace,)):
                return False
            try:
                self._catalog.create_namespace((namespace,))
                return True
            except Exception:
                # If another process was faster, the SQL catalog fails on its own unique key.
                if not self._catalog.namespace_exists((namespace,)):
                    raise
                return False

    def new_location(self, name: TableName) -> str:
        """A folder that no table has or had."""
        namespace, table = name.identifier
        return f"{self._warehouse}/{namespace}/{table}-{uuid.uuid4().hex[:12]}"

    def drop(self, table: Table, *, purge: bool) -> None:
        """Remove a table from the catalog, and with `purge` delete its files."""
        with translated(), self._translate_missing(table.name):
            if not purge:
                self._catalog.drop_table(table.name.identifier)
                return
            self._catalog.purge_table(table.name.identifier)
            remove_folder(table.location, table.iceberg.io.properties)

    def remove_folder(self, location: str) -> None:
        """Remove the folder of a table that is no longer in the catalog."""
        with translated():
            remove_folder(location, self._catalog.properties)

    def rename(self, table: Table, to: TableName) -> Table:
        """Rename a table, in one atomic step of the catalog; TableExists if the new name is taken."""
        namespace, _ = to.identifier
        with translated(), self._translate_missing(table.name):
            self.ensure_namespace(namespace)
            try:
                return Table(to, self._catalog.rename_table(table.name.identifier, to.identifier))
            except IcebergTableExists as e:
                raise table_exists(to) from e

    def fence(self, table: Table, batch: str) -> None:
        """Commit an empty snapshot, so that no change based on an earlier one can be committed any more. It stands for
        the same sources, if the table is a dynamic one."""

        def commit(current: IcebergTable) -> None:
            head = current.current_snapshot()
            known = {} if head is None else summary_of(head)
            state = {name: known[name] for name in (REFRESH_STATE_PROPERTY,) if name in known}
            with current.transaction() as change:
                change.update_snapshot({**state, FENCE_PROPERTY: batch}).fast_append().commit()

        self._change(table, commit, _TRIES)

    def set_properties(self, table: Table, properties: Mapping[str, str | None]) -> Table:
        """Set a table's properties, and remove those that are None, however often others commit at the same time."""

        def set_them(current: IcebergTable) -> None:
            kept = current.properties
            new = {key: value for key, value in properties.items() if value is not None and kept.get(key) != value}
            gone = [key for key, value in properties.items() if value is None and key in kept]
            if new or gone:
                with current.transaction() as change:
                    change.set_properties(new).remove_properties(*gone)

        return self.change_metadata(table, set_them)

    def remove_tag(self, table: Table, name: str) -> Table:
        """Remove a tag if the table has it, however often others commit at the same time."""

        def remove(current: IcebergTable) -> None:
            found = current.metadata.refs.get(name)
            if found is not None and found.snapshot_ref_type == SnapshotRefType.TAG:
                current.manage_snapshots().remove_tag(name).commit()

        return self.change_metadata(table, remove)

    def change_metadata(self, table: Table, change: Callable[[IcebergTable], None]) -> Table:
        """Apply `change` to a table's newest metadata, again after each commit of another writer.

        TableNotFound if the table was dropped or replaced.
        """
        changed = self._change(table, change, _METADATA_TRIES)
        if changed is None:
            raise table_replaced(table.name)
        return changed

    def _change(self, table: Table, change: Callable[[IcebergTable], None], tries: int) -> Table | None:
        """The changed table; None if the table was replaced."""
        with translated(), self._translate_missing(table.name):
            for attempt in range(1, tries + 1):
                current = self._catalog.load_table(table.name.identifier)
                if str(current.metadata.table_uuid) != table.uuid:
                    return None
                try:
                    change(current)
                    return Table(table.name, current)
                except CommitFailedException as e:
                    if attempt == tries:
                        raise CommitConflict("other writers changed the table first, many times in a row") from e
                    time.sleep(random.uniform(0, _PAUSE_S * min(attempt, 10)))
        return None

    @contextmanager
    def _translate_missing(self, name: TableName) -> Iterator[None]:
        try:
            yield
        except (NoSuchTableError, NoSuchNamespaceError) as e:
            raise self._not_found(name) from e

    def _not_found(self, name: TableName) -> TableNotFound:
        return table_not_found(name, self.list_tables(name.tenant, name.namespace))


def leaves_rows(summary: Mapping[str, str]) -> bool:
    """Whether a commit with this summary left all rows as they were."""
    return summary.get("operation") == "replace" or FENCE_PROPERTY in summary


def summary_of(snapshot: IcebergSnapshot) -> dict[str, str]:
    """A commit's summary, with its operation."""
    if snapshot.summary is None:
        return {}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
