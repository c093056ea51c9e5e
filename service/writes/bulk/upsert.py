"""The records of a bulk upsert: numbered as they arrive, with what the merge must know about all of them."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from service.model.edits import RECORD_NUMBER, SENT_PREFIX, MergeRule, StagedRecords
from service.model.schema.types import Field, Primitive, TableSchema, has_order
from service.writes.bulk.target import target_schema

OnDuplicate = Literal["refuse", "last"]
OnMultiple = Literal["update_all", "replace"]


@dataclass(frozen=True)
class UpsertOptions:
    """What a bulk upsert does with keys."""

    key_cols: tuple[str, ...] | None = None
    on_duplicate: OnDuplicate = "refuse"
    on_multiple: OnMultiple = "update_all"


class KeyedRecords:
    """Prepares the batches of one body for staging. All of them have the same columns."""

    def __init__(self, schema: TableSchema, keys: tuple[str, ...], options: UpsertOptions) -> None:
        self.schema = schema
        self.keys = keys
        self.options = options
        self._columns: tuple[str, ...] = ()
        self._sent = Counter[str]()
        self._ends: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
        self._count = 0

    def numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its records' numbers, and noted."""
        self._columns = tuple(name for name in batch.schema.names if name in self.schema.names)
        for name in self._columns:
            mark = SENT_PREFIX + name
            self._sent[name] += pc.sum(batch[mark]).as_py() or 0 if mark in batch.schema.names else batch.num_rows
        for key in self.keys:
            if batch.num_rows and has_order(self.schema.field(key).type):
                self._widen(key, batch[key])
        numbers = pa.array(range(self._count, self._count + batch.num_rows), pa.int64())
        self._count += batch.num_rows
        return batch.append_column(pa.field(RECORD_NUMBER, pa.int64(), nullable=False), numbers)

    def staged_schema(self, batch: pa.RecordBatch) -> TableSchema:
        """The columns of the internal table for batches such as this one."""
        return TableSchema(tuple(self._field(name) for name in batch.schema.names))

    def arrow_schema(self, batch: pa.RecordBatch) -> pa.Schema:
        """The Arrow schema of the same columns."""
        return target_schema(self.staged_schema(batch))

    def staged(self, source: str, size: int) -> StagedRecords:
        """All records, once they are staged."""
        ends = {key: (low.as_py(), high.as_py()) for key, (low, high) in self._ends.items()}
        return StagedRecords(source, self._count, size, frozenset(self._columns), ends)

    def rule(self) -> MergeRule:
        """How all records are merged."""
        known, count = self.schema, self._count
        update = tuple(name for name in known.names if name not in self.keys and self._sent[name])
        partly = frozenset(name for name in update if self._sent[name] < count)
        lacking = (f for f in known.fields if f.required and f.name not in self.keys)
        needed = tuple(f.name for f in lacking if self._sent[f.name] < count)
        return MergeRule(self.keys, known.names, update, partly, needed, self.options.on_multiple == "replace")

    def _field(self, name: str) -> Field:
        if name == RECORD_NUMBER:
            return Field(name, Primitive("long"))
        if name.startswith(SENT_PREFIX):
            return Field(name, Primitive("boolean"))
        return Field(name, self.schema.field(name).type)

    def _widen(self, key: str, values: pa.Array) -> None:
        found = pc.min_max(values)
        low, high = found["min"], found["max"]
        if key in self._ends:
            was_low, was_high = self._ends[key]
            low = was_low if was_low.as_py() <= low.as_py() else low
            high = was_high if was_high.as_py() >= high.as_py() else high
        self._ends[key] = low, high
