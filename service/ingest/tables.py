"""The columns, partitioning and properties of a table that is made from a table file."""

from service.ingest.files import stored_text
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import (
    DATASET_PROPERTY,
    INGEST_FIELDS,
    METRICS,
    PERIOD_PARTITION,
    TABLE_FILE_PROPERTY,
)
from service.model.ingest.table_file import TableFile
from service.model.properties import COMMENT
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema


def ingestion_layout(dataset: Dataset | None) -> tuple[TableSchema, tuple[PartitionField, ...]]:
    """The columns and the partitioning; without a dataset file the first file adds its columns."""
    fields = dataset.table_schema.fields if dataset else ()
    return TableSchema((*fields, *INGEST_FIELDS)), (PERIOD_PARTITION,)


def ingestion_properties(table_file: TableFile, dataset: Dataset | None) -> dict[str, str]:
    """The Iceberg properties."""
    properties = {TABLE_FILE_PROPERTY: stored_text(table_file), **METRICS}
    if dataset is not None:
        properties[DATASET_PROPERTY] = stored_text(dataset)
    if table_file.description is not None:
        properties[COMMENT] = table_file.description
    return properties
