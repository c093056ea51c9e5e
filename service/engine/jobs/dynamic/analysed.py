"""The columns of a query over the sources of a dynamic table, without running it."""

from collections.abc import Mapping, Sequence

from service.engine.session.spark_types import SparkSession
from service.model.schema.types import Field


def analyse(session: SparkSession, sources: Mapping[int, Sequence[Field]], sql: str) -> tuple[Field, ...]:
    """The names and types of a SELECT's columns over the views `s{i}_new` of sources with these columns.

    Raises InvalidQuery if Spark refuses it, if two columns have the same name, or if a column has a type that a table
    cannot store.
    """
    raise NotImplementedError
