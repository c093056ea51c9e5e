"""PySpark's types for annotations. Importing this does not load PySpark, which only a process with an engine needs.

A function that needs PySpark when it runs imports it itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType
else:
    DataFrame = SparkSession = DataType = Any

__all__ = ["DataFrame", "DataType", "SparkSession"]
