"""A table begun anew: every file out of it, other columns and another partitioning, in one swap of its metadata."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.compaction import Beaten
from service.engine.jvm import java_class
from service.engine.layout import Built, spec_fields
from service.engine.swap import Tag, Target, is_a, swap
from service.names import BATCH_PROPERTY
from service.partition import PartitionField

_ICEBERG = "org.apache.iceberg"


@dataclass(frozen=True)
class Afresh:
    """What the table is to be: a schema in Iceberg's JSON, a partitioning, and properties; None removes one."""

    schema: str
    partition: tuple[PartitionField, ...]
    properties: Mapping[str, str | None]


def reinitialise(
    session: SparkSession,
    table: str,
    uuid: str,
    schema_id: int,
    afresh: Afresh,
    batch: str,
    leave: Callable[[], object],
    tag: Tag | None = None,
) -> int:
    """Empty a table and give it another make-up; the snapshot it made. Beaten where others were quicker."""
    target = Target(session, table, uuid, schema_id)
    iceberg = target.load()
    name, operations = str(iceberg.name()), iceberg.operations()
    transaction = java_class(f"{_ICEBERG}.Transactions").newTransaction(name, operations)
    base = operations.current()
    target.check(base)
    metadata = _afresh(base, afresh)
    # A transaction's own: they know the new make-up, and what is done to them is seen by nobody.
    inside = transaction.table().operations()
    inside.commit(inside.current(), metadata)
    every = java_class(f"{_ICEBERG}.expressions.Expressions").alwaysTrue()
    update = java_class(f"{_ICEBERG}.BaseTable")(inside, name).newDelete().deleteFromRowFilter(every)
    update = update.set(BATCH_PROPERTY, batch)
    built = Built.on(base)

    def check(_: Any) -> None:
        built.check(operations.current())
        leave()

    try:
        return swap(target, iceberg, update, check, tag=tag, on=metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{_ICEBERG}.exceptions.ValidationException"):
            raise Beaten("others changed the table meanwhile") from e
        raise


def _afresh(base: Any, afresh: Afresh) -> Any:
    schema = java_class(f"{_ICEBERG}.SchemaParser").fromJson(afresh.schema)
    parser = java_class(f"{_ICEBERG}.PartitionSpecParser")
    past = [json.loads(parser.toJson(one)) for one in base.specs()]
    sources = {p.field: int(schema.findField(p.field).fieldId()) for p in afresh.partition}
    fields = spec_fields(afresh.partition, sources, past, int(base.lastAssignedPartitionId()))
    new_id = max((int(one["spec-id"]) for one in past), default=-1) + 1
    spec = parser.fromJson(schema, json.dumps({"spec-id": new_id, "fields": fields}))
    highest = max(int(base.lastColumnId()), int(schema.highestFieldId()))
    # Both at once: neither need go with what the other was.
    changes = base.buildFrom(base).setCurrentSchema(schema, highest).setDefaultPartitionSpec(spec)
    new = {key: value for key, value in afresh.properties.items() if value is not None}
    gone = [key for key, value in afresh.properties.items() if value is None]
    if new:
        changes = changes.setProperties(java_class("java.util.HashMap")(new))
    if gone:
        removed = java_class("java.util.HashSet")()
        for key in gone:
            removed.add(key)
        changes = changes.removeProperties(removed)
    return changes.build()
