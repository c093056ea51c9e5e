"""The job that moves staged rows into a table's own files, without committing them."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from service.derived import Derived
from service.engine.append import stage
from service.engine.derived import fill
from service.engine.swap import Staged
from service.engine.tags import OnCancel, cancellable
from service.engine.transforms import hashes_uuid
from service.partition import PartitionField
from service.schema import TableSchema

# Splits end where row groups do; without room for one more, the last few would make a task of their own.
_GROUP_BYTES = 5 << 20


def move(
    session: SparkSession,
    source: str,
    target: str,
    size: int,
    *,
    schema: TableSchema,
    partition: Sequence[PartitionField],
    derived: Sequence[Derived] = (),
    on_cancel: OnCancel = lambda cancel: None,
) -> Staged:
    """Write the rows of `source`, which take about `size` bytes there, into files of `target` for a later commit.

    Where a derived column of a row is null, it is worked out. `on_cancel` is given what cancels it; then it fails, and
    what was written is removed.
    """
    # A task a core: the fewer tasks, the fewer files; each closes its files as they reach their target size.
    cores = session.sparkContext.defaultParallelism
    split = -(-size // cores) + _GROUP_BYTES
    rows = session.read.option("split-size", str(split)).option("file-open-cost", "1").table(source)
    if derived:
        rows = fill(session, rows, derived)
    with cancellable(session, on_cancel):
        return stage(session, target, rows, _options(schema, partition))


def _options(schema: TableSchema, partition: Sequence[PartitionField]) -> dict[str, str]:
    """Each partition's rows together and, wherever that can be, one after another: a file open in every partition at
    once would take any memory."""
    if not partition:
        return {}
    return {"distribution-mode": "hash", "fanout-enabled": "true" if hashes_uuid(partition, schema) else "false"}
