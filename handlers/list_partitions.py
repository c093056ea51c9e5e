"""LIST_PARTITIONS: list a table's partitions, from metadata alone."""

from types import NoneType
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.files.data_files import matching_files
from service.catalog.partitions import partition_range, partition_values
from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.maintenance.advise.partitions import by_partition
from service.model.filters.pruning import partition_expression
from service.model.schema.ranges import ranges_of
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Metadata, Result, TableRequest, omit_when_null, operation
from service.operations.paging import Page, Paged, limit_field, pinned

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "sales"}
PARTITION = [{"field": "sold_at", "transform": "month", "name": "month"}, {"field": "country", "transform": "identity"}]


def _write(*sold: tuple[str, str]) -> dict[str, Any]:
    return write(ADDRESS, *({"sold_at": f"{day}T10:00:00", "country": country} for day, country in sold))


def _partition(month: str, country: str, files: int, rows: int) -> dict[str, Any]:
    return {
        "partition": {"month": month, "country": country},
        "spec_id": 0,
        "records": rows,
        "files": files,
        "bytes": "<any>",
        "small_files": files,
        "average_file_bytes": "<any>",
    }


GIVEN = (
    create_table(ADDRESS, {"sold_at": "timestamp", "country": "string"}, partition={"partitions": PARTITION}),
    _write(("2024-04-30", "CH"), ("2024-05-01", "CH")),
    _write(("2024-05-02", "CH"), ("2024-05-02", "IT")),
)
EXAMPLES = (
    Example(
        "List the partitions, most small files first",
        {"operation": "LIST_PARTITIONS", **ADDRESS},
        response(
            partitions=[
                _partition("2024-05", "CH", 2, 2),
                _partition("2024-04", "CH", 1, 1),
                _partition("2024-05", "IT", 1, 1),
            ],
            total=3,
        ),
        given=GIVEN,
    ),
    Example(
        "List only those that a filter may match",
        {"operation": "LIST_PARTITIONS", **ADDRESS, "partition_filter": {"country": "IT"}, "limit": 10},
        response(partitions=[_partition("2024-05", "IT", 1, 1)], total=1),
        given=GIVEN,
    ),
)


class ListPartitions(Paged, TableRequest):
    operation: Literal["LIST_PARTITIONS"]
    partition_filter: Any = Field(
        default=None, description="a filter on partition columns: only partitions that it may match are listed"
    )
    limit: int = limit_field(1000, 100_000)


class KeyRange(BaseModel):
    """A range of the first key."""

    from_: Any = omit_when_null("the lowest key; absent if the range has no lower bound", "from")
    before: Any = omit_when_null("the first key above the range; absent if it has no upper bound")


class Partition(BaseModel):
    partition: dict[str, Any] = Field(
        description="the value of each partition field, as in a QUERY: `2024-05` for a month, a number for a bucket; "
        "{} if the table is not partitioned"
    )
    spec_id: int = Field(description="the table's partitioning that the files were written with; 0 is the first")
    range: KeyRange | None = omit_when_null("the keys in its files, if the table is split by ranges of its first key")
    records: int = Field(
        description="its rows; includes rows deleted by delete files that may apply to several data files"
    )
    files: int = Field(description="its data files")
    bytes: int = Field(description="the size of these files")
    small_files: int = Field(description="how many of them count as small")
    average_file_bytes: int = Field(description="the mean size of a file")


class ListPartitionsResult(Page, Result):
    partitions: list[Partition] = Field(description="most small files first, then most files, then by value")
    total: int = Field(description="all partitions that the filter may match")


@operation(ListPartitions, ListPartitionsResult, pool="metadata", examples=EXAMPLES)
def list_partitions(request: ListPartitions, catalog: Catalog, small_files: SmallFileChecks) -> ListPartitionsResult:
    """List a table's partitions with their rows, files, bytes and small files, most fragmented first."""
    table = catalog.load(request.table_name)
    pruning = partition_expression(request.partition_filter, table.schema, table.partition)
    # Every write changes the order, so a cursor keeps the snapshot and what counts as small.
    first: tuple[Any, ...] = (table.uuid, table.current_snapshot_id, small_files.small_bytes(table), 0)
    uuid, snapshot_id, small_bytes, done = request.place(str, (int, NoneType), int, int) or first
    if snapshot_id is not None:
        pinned(table, uuid, snapshot_id)
    found = by_partition(matching_files(table, pruning, snapshot_id), small_bytes)
    page, _ = request.page(found[done:], lambda _: [])
    done += len(page)
    more = done < len(found)
    return ListPartitionsResult(
        partitions=[
            Partition(
                partition=partition_values(table, p.group),
                spec_id=p.group[0],
                range=_range(table, p.group),
                records=p.rows,
                files=p.files,
                bytes=p.bytes,
                small_files=p.small_files,
                average_file_bytes=p.average_file_bytes,
            )
            for p in page
        ],
        total=len(found),
        next_cursor=request.cursor_at([uuid, snapshot_id, small_bytes, done]) if more else None,
        metadata=Metadata(snapshot_id=snapshot_id),
    )


def _range(table: Table, group: tuple[Any, ...]) -> KeyRange | None:
    ranges, number = ranges_of(table.properties), partition_range(table, group)
    if ranges is None or number is None:
        return None
    first, following = ranges.between(number)
    return KeyRange(from_=first, before=following)
