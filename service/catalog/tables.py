"""Tables and their metadata, read in process: nothing here starts a Spark job."""

import hashlib
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
from service.catalog.folders import remove_folder
from service.catalog.states import oldest, tagged
from service.catalog.translate import translated
from service.derived import Derived, derived_of
from service.errors import CommitConflict, SnapshotNotFound, TableExists, TableNotFound, nearest
from service.moments import Moment
from service.names import (
    BATCH_PROPERTY,
    CATALOG,
    FENCE_PROPERTY,
    RESERVED_COLUMN_PREFIX,
    TableName,
    decode,
    decode_namespace,
    namespace_identifier,
)
from service.partition import PartitionField
from service.schema import TableSchema, visible

_TRIES = 5
# A change of properties builds on nothing that others write: it may be tried until it is quicker than they.
_PATIENT_TRIES = 200
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Snapshot:
    """One state of a table, and what the commit that made it said about itself."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    schema: TableSchema
    summary: dict[str, str]
    schema_id: int | None = None
    sequence_number: int = 0
    """The place of its commit among the table's: later ones have greater numbers."""

    def counted(self, key: str) -> int:
        return int(self.summary.get(key, 0))

    @property
    def leaves_rows(self) -> bool:
        """Whether the commit left all rows as they were."""
        return leaves_rows(self.summary)


@dataclass(frozen=True)
class Table:
    """A table as its metadata stood when it was loaded."""

    name: TableName
    iceberg: IcebergTable

    @property
    def uuid(self) -> str:
        return str(self.iceberg.metadata.table_uuid)

    @property
    def schema_id(self) -> int:
        return self.iceberg.metadata.current_schema_id

    @cached_property
    def schema(self) -> TableSchema:
        """The columns that requests may name and answers show."""
        return visible(self.stored_schema)

    @cached_property
    def stored_schema(self) -> TableSchema:
        """All columns, those of Firn's own too."""
        return types.from_iceberg(self.iceberg.schema())

    @cached_property
    def partition(self) -> tuple[PartitionField, ...]:
        """How it is partitioned by columns that requests may name."""
        return tuple(p for p in self.stored_partition if not p.field.startswith(RESERVED_COLUMN_PREFIX))

    @cached_property
    def stored_partition(self) -> tuple[PartitionField, ...]:
        return types.from_spec(self.iceberg.spec(), self.iceberg.schema())

    @property
    def hidden_partition(self) -> tuple[PartitionField, ...]:
        """How it is partitioned by columns of Firn's own."""
        return tuple(p for p in self.stored_partition if p.field.startswith(RESERVED_COLUMN_PREFIX))

    @property
    def spec_id(self) -> int:
        return self.iceberg.metadata.default_spec_id

    @property
    def past_partition(self) -> tuple[PartitionField, ...]:
        """The fields of every partitioning that the table has had, the present one's among them."""
        schema = self.iceberg.schema()
        return tuple(field for spec in self.iceberg.specs().values() for field in types.from_spec(spec, schema))

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.iceberg.properties)

    @cached_property
    def derived(self) -> tuple[Derived, ...]:
        """The columns that are worked out where a row has no value for them."""
        return derived_of(self.iceberg.properties, self.schema)

    @property
    def location(self) -> str:
        return self.iceberg.location()

    @property
    def metadata_location(self) -> str:
        return self.iceberg.metadata_location

    @property
    def spark_name(self) -> str:
        """The table in Spark SQL; its parts hold nothing that needs more than backquotes."""
        return ".".join(f"`{part}`" for part in (CATALOG, *self.name.identifier))

    @property
    def current_snapshot_id(self) -> int | None:
        return self.iceberg.metadata.current_snapshot_id

    @property
    def snapshot_count(self) -> int:
        return len(self.iceberg.metadata.snapshots)

    @property
    def head_has_table_schema(self) -> bool:
        """Whether reading the current snapshot by its id shows the table's present columns."""
        head = self.iceberg.current_snapshot()
        return head is not None and head.schema_id == self.iceberg.metadata.current_schema_id

    def snapshots(self) -> list[Snapshot]:
        return [self._snapshot(s) for s in self.iceberg.metadata.snapshots]

    def snapshot(self, snapshot_id: int, field: str = "as_of") -> Snapshot:
        """The snapshot with this id; where there is none, SnapshotNotFound names the oldest there is."""
        found = self.iceberg.snapshot_by_id(snapshot_id)
        if found is None:
            raise SnapshotNotFound(
                f"{self.name.table} has no snapshot {snapshot_id}; it may have expired; "
                f"{oldest(self.iceberg.metadata)}",
                field=field,
            )
        return self._snapshot(found)

    def snapshot_as_of(self, moment: Moment, field: str = "as_of") -> Snapshot:
        """The snapshot with this id or this tag, or the one that was current at this time."""
        if isinstance(moment, int):
            return self.snapshot(moment, field)
        if isinstance(moment, str):
            return self.snapshot(tagged(self.iceberg.metadata, self.name.table, moment, field), field)
        millis = int(moment.timestamp() * 1000)
        current = [entry for entry in self.iceberg.metadata.snapshot_log if entry.timestamp_ms <= millis]
        if not current:
            raise SnapshotNotFound(
                f"{self.name.table} held no data yet, or has expired, at {moment.isoformat()}; "
                f"{oldest(self.iceberg.metadata)}",
                field=field,
            )
        return self.snapshot(current[-1].snapshot_id, field)

    def committed_by(self, batch: str) -> Snapshot | None:
        """The snapshot that a batch's commit made: in any branch of history, newest first."""
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
            visible(types.from_iceberg(schema)),
            summary_of(found),
            schema.schema_id,
            found.sequence_number or 0,
        )


class Catalog:
    """Every table Firn keeps, by its address."""

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
        raise self._missing(name)

    def list_tables(self, tenant: str, namespace: str) -> list[str]:
        with translated():
            try:
                found = self._catalog.list_tables((namespace_identifier(tenant, namespace),))
            except NoSuchNamespaceError:
                return []
        return sorted(name for name in (decode(identifier[-1]) for identifier in found) if name)

    def list_namespaces(self, tenant: str | None = None) -> list[tuple[str, str]]:
        """Tenants and their namespaces that hold tables, or have held some; of one tenant, or of all."""
        with translated():
            found = self._catalog.list_namespaces()
        parts = (decode_namespace(identifier[-1]) for identifier in found)
        return sorted(part for part in parts if part and tenant in (None, part[0]))

    def create(
        self,
        name: TableName,
        schema: TableSchema,
        partition: tuple[PartitionField, ...],
        properties: dict[str, str],
    ) -> Table:
        """A new, empty table in a folder that no other table, past or present, has had."""
        namespace, _ = name.identifier
        iceberg_schema = types.to_iceberg(schema)
        location = self.new_location(name)
        with translated():
            if self._catalog.table_exists(name.identifier):
                raise _exists(name)
            self.ensure_namespace(namespace)
            try:
                created = self._catalog.create_table(
                    name.identifier,
                    iceberg_schema,
                    location=location,
                    partition_spec=types.to_spec(partition, iceberg_schema),
                    properties=properties,
                )
            except IcebergTableExists as e:  # somebody else was faster
                with suppress(Exception):  # an orphan, at worst
                    self.remove_folder(location)
                raise _exists(name) from e
        return Table(name, created)

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's own, for this room."""
        return self._catalog

    def ensure_namespace(self, namespace: str) -> bool:
        """See to it that a namespace is there; whether it had to be made."""
        with self._making_namespace:
            if self._catalog.namespace_exists((namespace,)):
                return False
            try:
                self._catalog.create_namespace((namespace,))
                return True
            except Exception:
                # Another process may have been faster; the SQL catalog then fails on its own unique key.
                if not self._catalog.namespace_exists((namespace,)):
                    raise
                return False

    def new_location(self, name: TableName) -> str:
        """A folder that no table, past or present, has had."""
        namespace, table = name.identifier
        return f"{self._warehouse}/{_folder(namespace)}/{table}-{uuid.uuid4().hex[:12]}"

    def drop(self, table: Table, *, purge: bool) -> None:
        """Forget a table; with `purge` its files are deleted too."""
        with translated(), self._gone_is(table.name):
            if not purge:
                self._catalog.drop_table(table.name.identifier)
                return
            self._catalog.purge_table(table.name.identifier)
            remove_folder(table.location, table.iceberg.io.properties)

    def remove_folder(self, location: str) -> None:
        """Remove the folder of a table that is in the catalog no more."""
        with translated():
            remove_folder(location, self._catalog.properties)

    def rename(self, table: Table, to: TableName) -> Table:
        """Give a table another address, in one step of the catalog; TableExists where that one is taken."""
        namespace, _ = to.identifier
        with translated(), self._gone_is(table.name):
            self.ensure_namespace(namespace)
            try:
                return Table(to, self._catalog.rename_table(table.name.identifier, to.identifier))
            except IcebergTableExists as e:
                raise _exists(to) from e

    def fence(self, table: Table, batch: str) -> None:
        """Give a table a snapshot that adds nothing: what was built on an earlier one can no longer be committed."""
        with translated(), self._gone_is(table.name):
            for attempt in range(_TRIES):
                current = self._catalog.load_table(table.name.identifier)
                if str(current.metadata.table_uuid) != table.uuid:
                    return
                try:
                    with current.transaction() as change:
                        change.update_snapshot({FENCE_PROPERTY: batch}).fast_append().commit()
                    return
                except CommitFailedException as e:
                    if attempt + 1 == _TRIES:
                        raise CommitConflict("other writers changed the table first, several times in a row") from e

    def set_properties(self, table: Table, properties: Mapping[str, str | None]) -> Table:
        """Set a table's properties, and remove those that are None, however often others commit meanwhile."""

        def set_them(current: IcebergTable) -> None:
            kept = current.properties
            new = {key: value for key, value in properties.items() if value is not None and kept.get(key) != value}
            gone = [key for key, value in properties.items() if value is None and key in kept]
            if new or gone:
                with current.transaction() as change:
                    change.set_properties(new).remove_properties(*gone)

        return self.patiently(table, set_them)

    def remove_tag(self, table: Table, name: str) -> Table:
        """Take a tag off a table, if it is there, however often others commit meanwhile."""

        def remove(current: IcebergTable) -> None:
            found = current.metadata.refs.get(name)
            if found is not None and found.snapshot_ref_type == SnapshotRefType.TAG:
                current.manage_snapshots().remove_tag(name).commit()

        return self.patiently(table, remove)

    def patiently(self, table: Table, change: Callable[[IcebergTable], None]) -> Table:
        """Have a change made of a table's newest metadata, again and again while others are quicker."""
        with translated(), self._gone_is(table.name):
            for attempt in range(_PATIENT_TRIES):
                current = self._catalog.load_table(table.name.identifier)
                if str(current.metadata.table_uuid) != table.uuid:
                    break
                try:
                    change(current)
                    return Table(table.name, current)
                except CommitFailedException as e:
                    if attempt + 1 == _PATIENT_TRIES:
                        raise CommitConflict("other writers changed the table first, many times in a row") from e
                    time.sleep(random.uniform(0, _PAUSE_S * min(attempt + 1, 10)))
        raise TableNotFound(
            f"table {table.name.table!r} was dropped and created anew meanwhile; send the request again", field="table"
        )

    @contextmanager
    def _gone_is(self, name: TableName) -> Iterator[None]:
        try:
            yield
        except (NoSuchTableError, NoSuchNamespaceError) as e:
            raise self._missing(name) from e

    def _missing(self, name: TableName) -> TableNotFound:
        known = self.list_tables(name.tenant, name.namespace)
        near = nearest(name.table, known)
        if near:
            hint = f"did you mean {near!r}?"
        else:
            hint = f"it has {', '.join(known[:10])}" if known else "it has no tables yet; create one with CREATE_TABLE"
        return TableNotFound(
            f"there is no table {name.table!r} in namespace {name.namespace!r} of tenant {name.tenant!r}; {hint}",
            field="table",
            suggestion=near,
        )


def _exists(name: TableName) -> TableExists:
    return TableExists(
        f"table {name.table!r} exists already in namespace {name.namespace!r}; "
        "choose another name, drop it, or send if_not_exists: true",
        field="table",
    )


def _folder(namespace: str) -> str:
    """A folder for a namespace: its name, or where that is longer than a file system takes, the best part of it."""
    if len(namespace) <= 200:
        return namespace
    return f"{namespace[:180]}-{hashlib.sha256(namespace.encode()).hexdigest()[:16]}"


def leaves_rows(summary: Mapping[str, str]) -> bool:
    """Whether a commit that says this of itself left all rows as they were."""
    return summary.get("operation") == "replace" or FENCE_PROPERTY in summary


def summary_of(snapshot: IcebergSnapshot) -> dict[str, str]:
    """What a commit says of itself, and what kind it was."""
    if snapshot.summary is None:
        return {}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
