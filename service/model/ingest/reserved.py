"""What makes a table an ingestion table: its internal columns, and its table file and dataset file as properties."""

from collections.abc import Mapping

from service.errors import InvalidRequest
from service.model.ingest.dataset import Dataset
from service.model.ingest.table_file import QUARANTINE_SUFFIX, TableFile
from service.model.names import TableName
from service.model.schema.partition import PartitionField
from service.model.schema.types import Field, Primitive

PERIOD_FIELD = Field("_firn_period", Primitive("string"))
DATE_FIELD = Field("_firn_date", Primitive("date"))
FILE_FIELD = Field("_firn_file", Primitive("string"))
INGEST_FIELDS = (PERIOD_FIELD, DATE_FIELD, FILE_FIELD)
PERIOD_PARTITION = PartitionField(PERIOD_FIELD.name, "identity", PERIOD_FIELD.name)

TABLE_FILE_PROPERTY = "firn.ingest.table"
DATASET_PROPERTY = "firn.ingest.dataset"
# Of a quarantine: the id of the table that rejected its rows.
QUARANTINE_OF_PROPERTY = "firn.ingest.quarantine-of"
# In a snapshot's summary: the files that its commit ingested, as JSON.
INGEST_PROPERTY = "firn-ingest"
# The dates of a file are known from its metadata, however many columns the table has.
METRICS = {f"write.metadata.metrics.column.{field.name}": "full" for field in (PERIOD_FIELD, DATE_FIELD)}


def quarantine_name(table: TableName) -> TableName:
    """The name of the table with the rows that an ingestion table rejected."""
    return TableName(table.tenant, table.namespace, table.table + QUARANTINE_SUFFIX)


def quarantined_name(quarantine: TableName) -> TableName | None:
    """The name of the table that a quarantine belongs to; None if it is not named as one."""
    table = quarantine.table.removesuffix(QUARANTINE_SUFFIX)
    return None if table == quarantine.table else TableName(quarantine.tenant, quarantine.namespace, table)


def trigger_name(table_uuid: str) -> str:
    """The name of the schedule that a table file's trigger asks for. It stays the same if the table is renamed."""
    return f"compact-due-{table_uuid.partition('-')[0]}"


def is_ingestion_table(properties: Mapping[str, str]) -> bool:
    """Whether a table was made from a table file."""
    return TABLE_FILE_PROPERTY in properties


def table_file_of(properties: Mapping[str, str]) -> TableFile | None:
    """The table file that a table was made from, from its Iceberg properties."""
    text = properties.get(TABLE_FILE_PROPERTY)
    return None if text is None else TableFile.model_validate_json(text)


def dataset_of(properties: Mapping[str, str]) -> Dataset | None:
    """The dataset file of a table; None if its first file gives or gave its columns."""
    text = properties.get(DATASET_PROPERTY)
    return None if text is None else Dataset.model_validate_json(text)


def refuse_ingestion_table(properties: Mapping[str, str], table: str, operation: str) -> None:
    """Refuse an operation that would add rows without a date, or replace the columns or the partitioning."""
    if is_ingestion_table(properties):
        raise InvalidRequest(
            f"table {table!r} was made from a table file: each of its rows is from the file of a date, and it is "
            f"partitioned by period, so {operation} is not possible; send INGEST with a file and its date",
            field="table",
        )
