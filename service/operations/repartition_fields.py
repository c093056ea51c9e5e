"""What REPARTITION reports."""

from typing import Any

from pydantic import BaseModel, Field


class RepartitionFigures(BaseModel):
    records: int = Field(description="rows in the new layout")
    files_before: int = Field(description="data files just before")
    files_after: int = Field(description="data files just after")
    bytes_before: int = Field(description="their size before")
    bytes_after: int = Field(description="and after")
    partitions_before: int = Field(description="partitions that held files before; a table without is one")
    partitions_after: int = Field(description="and after")
    rounds: int = Field(
        description="how often it went through the table: what others changed meanwhile takes further ones"
    )
    batches: int = Field(description="batches of files that were rewritten")
    spark_jobs: int = Field(description="jobs that Spark ran for them")
    validated: bool = Field(description="whether rows and checksum were compared")
    checksum: str | None = Field(
        description="of all rows over the columns there were before, whatever their order; null without `validate`"
    )
    duration_ms: int = Field(description="how long it took, up to the commit")


class EstimatedPartition(BaseModel):
    partition: dict[str, Any] = Field(description="each partition field's value, as LIST_PARTITIONS has it")
    rows: int = Field(description="the rows that would lie there, counted")
    bytes: int = Field(description="about their size, if rows are as large as the table's are on average")


class RepartitionEstimate(BaseModel):
    partitions: list[EstimatedPartition] = Field(description="most rows first, then by value; at most 1,000")
    partition_count: int = Field(description="how many there would be")
    truncated: bool = Field(description="whether there are more than are listed")
    rows: int = Field(description="all rows")
    bytes: int = Field(description="the size of the data files that hold them now")


class RepartitionPlan(BaseModel):
    files: int = Field(description="data files that would be rewritten")
    bytes: int = Field(description="their size")
    rows: int = Field(description="their rows; where a program left delete files, deleted ones too")
    batches: int = Field(description="how many batches that makes")
    partitions: int = Field(description="how many partitions there would be")
