"""The dataset that the first file of a table gives, if the table has no dataset file."""

from collections.abc import Mapping

from service.model.ingest.dataset import CsvFormat, Dataset, DatasetColumn
from service.model.ingest.reading import ReadableFile
from service.model.schema.definition import check_column_name


def inferred(file: ReadableFile, types: Mapping[str, str], how: CsvFormat) -> Dataset:
    """A dataset with a column for each field of the file, of the type that all its values have."""
    for name in file.fields:
        check_column_name(name, "source")
    return Dataset(
        columns=tuple(DatasetColumn(name=name, type=types.get(name, "VARCHAR")) for name in file.fields), csv=how
    )
