"""The table of rejected rows beside an ingestion table: `<table>__quarantine`."""

import json
from datetime import datetime

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.engine.jobs.ingest.files import IngestTarget
from service.errors import InvalidRequest, TableExists, TableNotFound
from service.ingest.prepare import PreparedFile
from service.model.call import Call
from service.model.ingest.reserved import QUARANTINE_OF_PROPERTY, quarantine_name
from service.model.properties import TableProperties, to_iceberg
from service.model.schema.types import Field, Primitive, TableSchema
from service.settings import IcebergSettings

DAY_COLUMN, HASH_COLUMN, RUN_COLUMN, REPLAY_COLUMN = "ingest_date", "content_hash", "run_id", "replay_id"
_STRING, _TIME = Primitive("string"), Primitive("timestamptz")
_FIXED = (
    Field(DAY_COLUMN, Primitive("date")),
    Field("file", _STRING),
    Field(HASH_COLUMN, _STRING),
    Field(RUN_COLUMN, _STRING),
    Field("rejected_at", _TIME),
    # How `raw` is read: as csv or json, and as JSON the names of the fields that the file has.
    Field("format", _STRING),
    Field("fields", _STRING),
    # The run of the replay that puts the row into the table; once the table has that run, the row is done with.
    Field(REPLAY_COLUMN, _STRING),
)
SCHEMA = TableSchema(
    (
        *_FIXED[:3],
        Field("line", Primitive("long")),
        Field("raw", _STRING),
        Field("rule", _STRING),
        Field("column_name", _STRING),
        *_FIXED[3:],
    )
)


class Quarantines:
    """Finds and creates the tables of rejected rows."""

    def __init__(self, settings: IcebergSettings, catalog: Catalog, commits: Commits) -> None:
        self._settings = settings
        self._catalog = catalog
        self._commits = commits

    def find(self, table: Table) -> Table | None:
        """The table of rejected rows; None if there is none yet."""
        try:
            found = self._catalog.load(quarantine_name(table.name))
        except TableNotFound:
            return None
        return found if _is_of(found, table) else None

    def ensure(self, table: Table) -> Table:
        """The table of rejected rows, which is created with the first of them.

        InvalidRequest if a table of its name has something else, such as the rows that an earlier table rejected.
        """
        found = self.find(table)
        if found is not None:
            return found
        name = quarantine_name(table.name)
        given = to_iceberg(TableProperties(description=f"rows that {table.name.table} rejected"), self._settings)
        properties = {**given, QUARANTINE_OF_PROPERTY: table.uuid}
        try:
            return self._commits.create(name, SCHEMA, (), properties, Call(requested_by="ingest"))
        except TableExists:
            found = self._catalog.load(name)
        if not _is_of(found, table):
            raise InvalidRequest(
                f"rejected rows of {table.name.table!r} go to {name.table!r}, but that is another table, not its "
                "quarantine; rename or drop it first",
                field="table",
            )
        return found


def _is_of(quarantine: Table, table: Table) -> bool:
    return quarantine.properties.get(QUARANTINE_OF_PROPERTY) == table.uuid


def target_of(table: Table) -> IngestTarget:
    return IngestTarget(table.spark_name, table.uuid, table.schema_id)


def quarantined_values(
    one: PreparedFile, run_id: str, now: datetime, replay_id: str | None = None
) -> list[tuple[Field, object]]:
    """The columns that are the same in all quarantined rows of a file."""
    fetched, file = one.fetched, one.readable
    fields = json.dumps(file.fields, ensure_ascii=False)
    format = "csv" if file.format == "csv" else "json"
    source = (one.file.day, fetched.source.name, fetched.content_hash)
    return list(zip(_FIXED, (*source, run_id, now, format, fields, replay_id), strict=True))
