"""The quarantine of an ingestion table, which is renamed, dropped and restored with it."""

from dataclasses import dataclass, replace

from service.catalog.tables import Catalog, Table
from service.commits.file_removal import owns_its_files
from service.errors import InvalidRequest, TableNotFound
from service.ledger.table_records import DROP, Companion, TableRecord, TableRecords, TableStep
from service.model.ingest.reserved import QUARANTINE_OF_PROPERTY, is_ingestion_table, quarantine_name
from service.model.ingest.table_file import check_table_name
from service.model.names import TableName, dropped_table_name


@dataclass(frozen=True)
class QuarantineFinder:
    """Finds the quarantine that goes with a table in a step."""

    catalog: Catalog
    records: TableRecords

    def find(self, table: Table, record: TableRecord) -> Table | None:
        """The quarantine of a table, which may be dropped; None if it has none, or it was dropped on its own."""
        if not is_ingestion_table(table.properties):
            return None
        name = quarantine_name(record.name)
        places = [name]
        if record.dropped_ms is not None:
            dropped = self.records.restorable(name.tenant, name.namespace, now_ms=0)
            together = [one for one in dropped if one.name == name and one.dropped_ms == record.dropped_ms]
            places = [dropped_table_name(one.uuid) for one in together] + places
        for place in places:
            try:
                found = self.catalog.load(place)
            except TableNotFound:
                continue
            if found.properties.get(QUARANTINE_OF_PROPERTY) == table.uuid:
                return found
        return None


def check_new_name(table: Table, to: TableName) -> None:
    """Raise InvalidRequest if the quarantine of a table cannot be named after this name."""
    if is_ingestion_table(table.properties):
        try:
            check_table_name(to.table)
        except ValueError as e:
            raise InvalidRequest.at("new_name", str(e)) from e


def with_quarantine(step: TableStep, quarantine: Table, record: TableRecord, to: TableName) -> TableStep:
    """A step that the quarantine takes too."""
    name = quarantine_name(record.name).table
    folder = quarantine.location if step.kind == DROP and owns_its_files(quarantine) else None
    new_name = None if step.kind == DROP else quarantine_name(to).table
    return replace(step, companion=Companion(quarantine.uuid, name, new_name, folder))
