"""Rows as Arrow batches, wherever they are computed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from service.engine.session.scans import Scan


class RowBatches(ABC):
    """The rows of a query, to be read once. Steps may run on different threads, one at a time."""

    schema: pa.Schema
    scans: Sequence[Scan]

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def close(self) -> None:
        """Release everything. Running jobs are cancelled, and end soon after."""
