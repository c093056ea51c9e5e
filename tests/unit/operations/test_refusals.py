"""What is refused, of every operation: by which code, at which field, with what to say instead, and to no effect."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.app import App
from tests.contract.entry_points import ENTRY_POINTS
from tests.harness import Firn
from tests.support.refusals import (
    DAILY,
    GIVEN,
    SHAPES,
    TABLE,
    Bad,
    check,
    check_deep_nesting,
    check_message,
    table_states,
)
from tests.support.served import served


def create(**parts: Any) -> dict[str, Any]:
    return {"operation": "CREATE_TABLE", "table": "new", "schema": {"fields": {"ab": {"type": "long"}}}, **parts}


def fields(**of: Any) -> dict[str, Any]:
    return create(schema={"fields": of})


def by(**part: Any) -> dict[str, Any]:
    return create(partition={"partitions": [part]})


def write(*records: Any, **parts: Any) -> dict[str, Any]:
    return {"operation": "WRITE", "records": list(records), **parts}


def query(**parts: Any) -> dict[str, Any]:
    return {"operation": "QUERY", **parts}


def upsert(*records: Any, **parts: Any) -> dict[str, Any]:
    return {"operation": "UPSERT", "records": list(records), **parts}


def update(**parts: Any) -> dict[str, Any]:
    return {"operation": "UPDATE", **{"updates": {"name": "x"}, "filter": {"id": 1}, **parts}}


def remove(**parts: Any) -> dict[str, Any]:
    return {"operation": "DELETE", **parts}


def policy(**parts: Any) -> dict[str, Any]:
    return {"operation": "SET_COMPACTION", **parts}


ANY_REQUEST = [
    Bad({"operation": "CREATE_TABEL"}, "UNKNOWN_OPERATION", "operation", "CREATE_TABLE"),
    Bad({"operation": "wriet"}, "UNKNOWN_OPERATION", "operation", "WRITE"),
    Bad({"operation": "frobnicate"}, "UNKNOWN_OPERATION", "operation"),
    Bad({"operation": "select"}, "UNKNOWN_OPERATION", "operation", "QUERY"),
    Bad({"operation": "READ"}, "UNKNOWN_OPERATION", "operation", "QUERY"),
    Bad({"operation": "GET_SCHEDULE"}, "UNKNOWN_OPERATION", "operation", "LIST_SCHEDULES"),
    Bad({"operation": "INSERT"}, "UNKNOWN_OPERATION", "operation", "WRITE"),
    Bad({"operation": "DROP"}, "UNKNOWN_OPERATION", "operation", "DROP_TABLE"),
    Bad({"operation": 3}, "INVALID_REQUEST", "operation"),
    Bad({}, "INVALID_REQUEST", "operation"),
    Bad(query(tenant_id=7), "INVALID_REQUEST", "tenant_id"),
    Bad(query(tenant_id=""), "INVALID_REQUEST", "tenant_id"),
    Bad(query(tenant_id="a/../b"), "INVALID_REQUEST", "tenant_id"),
    Bad(query(tenant_id="_firn"), "INVALID_REQUEST", "tenant_id"),
    Bad(query(tenant_id="a" * 64), "INVALID_REQUEST", "tenant_id"),
    Bad(query(namespace="a b"), "INVALID_REQUEST", "namespace"),
    Bad(query(namespace=None), "INVALID_REQUEST", "namespace"),
    Bad(query(table="people\n"), "INVALID_REQUEST", "table"),
    Bad(query(table=True), "INVALID_REQUEST", "table"),
    Bad({"operation": "LIST_TABLES", "table": None, "tenant": "a"}, "UNKNOWN_FIELD", "tenant", "tenant_id"),
]
CREATE_TABLE = [
    Bad(create(table="people"), "TABLE_EXISTS", "table", status=409),
    Bad({"operation": "CREATE_TABLE", "table": "new"}, "INVALID_REQUEST", "schema"),
    Bad({"operation": "CREATE_TABLE", "table": "new", "shcema": {}}, "UNKNOWN_FIELD", "shcema", "schema"),
    Bad(create(schema=[]), "INVALID_REQUEST", "schema"),
    Bad(create(schema={}), "INVALID_SCHEMA", "schema.fields"),
    Bad(create(schema={"feilds": {}}), "INVALID_SCHEMA", "schema.feilds", "fields"),
    Bad(fields(), "INVALID_SCHEMA", "schema.fields"),
    Bad(fields(a={"type": "strnig"}), "INVALID_SCHEMA", "schema.fields.a.type", "string"),
    Bad(fields(a={"type": "int"}), "INVALID_SCHEMA", "schema.fields.a.type", "integer"),
    Bad(fields(a={"type": "decimal(39,0)"}), "INVALID_SCHEMA", "schema.fields.a.type"),
    Bad(fields(a={"type": "string", "requierd": True}), "INVALID_SCHEMA", "schema.fields.a.requierd", "required"),
    Bad(fields(a={"type": "array"}), "INVALID_SCHEMA", "schema.fields.a.items"),
    Bad(fields(a={"type": "string"}, A={"type": "string"}), "INVALID_SCHEMA", "schema.fields.A"),
    Bad(fields(_firn_a={"type": "string"}), "INVALID_SCHEMA", "schema.fields"),
    Bad(fields(_file={"type": "string"}), "INVALID_SCHEMA", "schema.fields"),
    Bad(
        create(schema={"fields": {"a": {"type": "long"}}, "primary_key": ["a", "a"]}),
        "INVALID_SCHEMA",
        "schema.primary_key[1]",
    ),
    Bad(
        create(schema={"fields": {"key": {"type": "long"}}, "primary_key": ["kye"]}),
        "INVALID_SCHEMA",
        "schema.primary_key[0]",
        "key",
    ),
    Bad(create(partition={"partition": []}), "INVALID_SCHEMA", "partition.partition", "partitions"),
    Bad(by(field="abc"), "INVALID_SCHEMA", "partition.partitions[0].field", "ab"),
    Bad(
        create(partition={"partitions": [{"field": "x"}, {"field": "abc"}]}),
        "INVALID_SCHEMA",
        "partition.partitions[0].field",
        "ab",
    ),
    Bad(by(field="ab", transform="buckte"), "INVALID_SCHEMA", "partition.partitions[0].transform", "bucket"),
    Bad(by(field="ab", transform="day"), "INVALID_SCHEMA", "partition.partitions[0].transform"),
    Bad(by(field="ab", transform="bucket"), "INVALID_SCHEMA", "partition.partitions[0].num_buckets"),
    Bad(by(field="ab", transform="truncate", width=0), "INVALID_SCHEMA", "partition.partitions[0].width"),
    Bad(create(properties={"compresion": "zstd"}), "UNKNOWN_FIELD", "properties.compresion", "compression"),
    Bad(create(properties={"compression": "zip"}), "INVALID_REQUEST", "properties.compression"),
    Bad(
        create(properties={"compaction": {"enabeld": True}}),
        "UNKNOWN_FIELD",
        "properties.compaction.enabeld",
        "enabled",
    ),
    Bad(
        create(properties={"min_files_to_compact": 1}), "INVALID_REQUEST", "properties.compaction.min_files_to_compact"
    ),
    Bad(create(properties={"enabled": True, "compaction": {"enabled": True}}), "INVALID_REQUEST", "properties"),
    *(
        Bad(create(properties={name: 10**20}), "INVALID_REQUEST", f"properties.compaction.{name}")
        for name in ("small_file_threshold_mb", "min_files_to_compact", "opportunistic_check_interval")
    ),
    Bad(create(properties={"target_file_size_mb": 2**43}), "INVALID_REQUEST", "properties.target_file_size_mb"),
    Bad(create(properties={"strategy": "sort"}), "INVALID_REQUEST", "properties.compaction.sort_by"),
    Bad(create(properties={"sort_by": ["abb"]}), "UNKNOWN_FIELD", "properties.compaction.sort_by[0]", "ab"),
    Bad(
        create(properties={"small_file_threshold_mb": 9, "target_file_size_mb": 9}),
        "INVALID_REQUEST",
        "properties.compaction.small_file_threshold_mb",
    ),
    Bad(
        create(properties={"window": "01:00-05:00 Europe/Zurick"}),
        "INVALID_REQUEST",
        "properties.compaction.window",
        "Europe/Zurich",
    ),
    Bad(create(if_not_exists="yes"), "INVALID_REQUEST", "if_not_exists"),
]
WRITE = [
    Bad(write({"id": 3}, table="peopel"), "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "WRITE"}, "INVALID_REQUEST", "records"),
    Bad({"operation": "WRITE", "recrods": [{"id": 3}]}, "UNKNOWN_FIELD", "recrods", "records"),
    Bad({"operation": "WRITE", "records": {"id": 3}}, "INVALID_REQUEST", "records"),
    Bad(write({"id": 3}, mode="apend"), "INVALID_REQUEST", "mode"),
    Bad(write({"id": 3}, 5), "INVALID_RECORD", "records[1]"),
    Bad(write({"id": 3}, {"name": "Cy"}), "INVALID_RECORD", "records[1].id"),
    Bad(write({"id": 3}, {"id": None}), "INVALID_RECORD", "records[1].id"),
    Bad(write({"id": 3}, {"id": "4"}), "INVALID_RECORD", "records[1].id"),
    Bad(write({"id": 3}, {"id": True}), "INVALID_RECORD", "records[1].id"),
    Bad(write({"id": 3}, {"id": 2**63}), "INVALID_RECORD", "records[1].id"),
    Bad(write({"id": 3}, {"id": 4, "age": 2**31}), "INVALID_RECORD", "records[1].age"),
    Bad(write({"id": 3}, {"id": 4, "name": 5}), "INVALID_RECORD", "records[1].name"),
    Bad(write({"id": 3}, {"id": 4, "nmae": "Di"}), "INVALID_RECORD", "records[1].nmae", "name"),
    Bad(write({"id": 3}, {"id": 4, "born": "2023-02-29"}), "INVALID_RECORD", "records[1].born"),
    Bad(write({"id": 3}, {"id": 4, "height": "1.005"}), "INVALID_RECORD", "records[1].height"),
    Bad(write({"id": 3}, {"id": 4, "height": "1000.00"}), "INVALID_RECORD", "records[1].height"),
    Bad(write({"id": 3}, {"id": 4, "home": {}}), "INVALID_RECORD", "records[1].home.city"),
    Bad(write({"id": 3}, {"id": 4, "home": {"ctiy": "A"}}), "INVALID_RECORD", "records[1].home.ctiy", "city"),
    Bad(write({"id": 3}, {"id": 4, "tags": ["a", 1]}), "INVALID_RECORD", "records[1].tags[1]"),
    Bad(write({"id": 3}, {"id": 4, "tags": "a"}), "INVALID_RECORD", "records[1].tags"),
    Bad(write({"id": 3}, {"id": 4, "scores": {"a": "x"}}), "INVALID_RECORD", "records[1].scores['a']"),
    Bad(write({"id": 3}, {"id": 4, "scores": []}), "INVALID_RECORD", "records[1].scores"),
    Bad(write({"id": 3, "age": 1}, {"id": None}, mode="overwrite"), "INVALID_RECORD", "records[1].id"),
]
QUERY = [
    Bad(query(table=None), "INVALID_REQUEST", "table"),
    Bad(query(table="peple"), "TABLE_NOT_FOUND", "table", "people", 404),
    Bad(query(table="nothing-like-it"), "TABLE_NOT_FOUND", "table", None, 404),
    Bad(query(limit=0), "INVALID_REQUEST", "limit"),
    Bad(query(limit=100_001), "INVALID_REQUEST", "limit"),
    Bad(query(limit="5"), "INVALID_REQUEST", "limit"),
    Bad(query(limit=True), "INVALID_REQUEST", "limit"),
    Bad(query(offset=-1), "INVALID_REQUEST", "offset"),
    Bad(query(limti=5), "UNKNOWN_FIELD", "limti", "limit"),
    Bad(query(filter=3), "INVALID_FILTER", "filter"),
    Bad(query(filter={"nmae": "x"}), "UNKNOWN_FIELD", "filter.nmae", "name"),
    Bad(query(filter={"home.ctiy": "x"}), "UNKNOWN_FIELD", "filter.home.ctiy", "home.city"),
    Bad(query(filter={"age": {"gtt": 5}}), "INVALID_FILTER", "filter.age.gtt", "gt"),
    Bad(query(filter={"age": {"gt": "x"}}), "INVALID_FILTER", "filter.age.gt"),
    Bad(query(filter={"age": {"in": 5}}), "INVALID_FILTER", "filter.age.in"),
    Bad(query(filter={"age": {"between": [1]}}), "INVALID_FILTER", "filter.age.between"),
    Bad(query(filter={"age": {"like": "x"}}), "INVALID_FILTER", "filter.age.like"),
    Bad(query(filter={"or": {"age": 5}}), "INVALID_FILTER", "filter.or"),
    Bad(query(filter={"id": 1}, filters={"id": 1}), "INVALID_FILTER", "filters"),
    Bad(query(filters=[{"field": "nmae", "operator": "eq", "value": 1}]), "UNKNOWN_FIELD", "filters[0].field", "name"),
    Bad(query(filters=[{"field": "age", "operator": "gtt", "value": 1}]), "INVALID_FILTER", "filters[0]", "gt"),
    Bad(query(filters=[{"field": "age", "operator": "gt", "vlaue": 1}]), "UNKNOWN_FIELD", "filters[0].vlaue", "value"),
    Bad(query(filters=[{"field": "age", "operator": "gt"}]), "INVALID_FILTER", "filters[0].value"),
    Bad(query(projection=["nmae"]), "UNKNOWN_FIELD", "projection[0].field", "name"),
    Bad(query(projection=[{"field": "name", "uper": True}]), "UNKNOWN_FIELD", "projection[0].uper", "upper"),
    Bad(query(projection=[{"field": "age", "upper": True}]), "INVALID_QUERY", "projection[0].upper"),
    Bad(query(projection=[{"field": "age", "cast": "lnog"}]), "INVALID_QUERY", "projection[0].cast", "long"),
    Bad(
        query(projection=[{"field": "born", "date_trunc": "mnoth"}]),
        "INVALID_QUERY",
        "projection[0].date_trunc",
        "month",
    ),
    Bad(query(projection=["id", "id"]), "INVALID_QUERY", "projection"),
    Bad(query(projection=[7]), "INVALID_REQUEST", "projection[0]"),
    Bad(query(aggregations=[{"op": "smu", "field": "age"}]), "INVALID_REQUEST", "aggregations[0].op"),
    Bad(query(aggregations=[{"op": "sum"}]), "INVALID_QUERY", "aggregations[0].field"),
    Bad(query(aggregations=[{"op": "sum", "field": "name"}]), "INVALID_QUERY", "aggregations[0].field"),
    Bad(query(aggregations=[{"op": "count"}], projection=["name"]), "INVALID_QUERY", "projection[0]"),
    Bad(query(group_by=["nmae"]), "UNKNOWN_FIELD", "group_by[0].field", "name"),
    Bad(query(group_by=["name"], having={"nmae": 1}), "UNKNOWN_FIELD", "having.nmae", "name"),
    Bad(query(having={"id": 1}), "INVALID_QUERY", "having"),
    Bad(query(where={"age": 7}), "UNKNOWN_FIELD", "where", "filter"),
    Bad(query(order_by=["age"]), "UNKNOWN_FIELD", "order_by", "sort"),
    Bad(query(sort="age desc"), "UNKNOWN_FIELD", "sort[0].field"),
    Bad(query(sort="age DESC, id"), "UNKNOWN_FIELD", "sort[0].field"),
    Bad(query(filter="age > 22"), "INVALID_FILTER", "filter"),
    Bad(
        {"operation": "DEDUPLICATE", "key_cols": ["name"], "order_by": "age desc"}, "UNKNOWN_FIELD", "order_by[0].field"
    ),
    Bad(query(sort=["nmae"]), "UNKNOWN_FIELD", "sort[0].field", "name"),
    Bad(query(sort=[{"field": "name", "order": "up"}]), "INVALID_REQUEST", "sort[0].order"),
    Bad(query(sort=["scores"]), "INVALID_QUERY", "sort[0].field"),
    Bad(query(join=[{"table": "dayly", "on": "id"}]), "TABLE_NOT_FOUND", "join[0].table", "daily", 404),
    Bad(query(join=[{"table": "people", "on": "id"}]), "INVALID_QUERY", "join[0].alias"),
    Bad(query(join=[{"table": "daily"}]), "INVALID_REQUEST", "join[0].on"),
    Bad(query(join=[{"table": "daily", "on": {"left": "name", "right": "n"}}]), "INVALID_QUERY", "join[0].on"),
    Bad(query(as_of="yesterday"), "SNAPSHOT_NOT_FOUND", "as_of", None, 404),
    Bad(query(as_of=1), "SNAPSHOT_NOT_FOUND", "as_of", None, 404),
    Bad(query(as_of="2020-01-01T00:00:00Z"), "SNAPSHOT_NOT_FOUND", "as_of", None, 404),
    Bad(query(params={"a": 1}), "INVALID_QUERY", "params"),
    Bad(query(table=None, sql="SELECT 1", filter={"id": 1}), "INVALID_QUERY", "filter"),
]
EDITS = [
    Bad(update(updates={}), "INVALID_REQUEST", "updates"),
    Bad(update(updates=[]), "INVALID_REQUEST", "updates"),
    Bad(update(updates={"nmae": "x"}), "UNKNOWN_FIELD", "updates.nmae", "name"),
    Bad(update(updates={"name": 5}), "INVALID_REQUEST", "updates.name"),
    Bad(update(updates={"id": None}), "INVALID_REQUEST", "updates.id"),
    Bad(update(updates={"home": {"city": 5}}), "INVALID_REQUEST", "updates.home.city"),
    Bad(update(filter=None), "INVALID_REQUEST", "filter"),
    Bad(update(filter={}), "INVALID_REQUEST", "filter"),
    Bad(update(filter={"nmae": 1}), "UNKNOWN_FIELD", "filter.nmae", "name"),
    Bad(update(all=True), "INVALID_REQUEST", "all"),
    Bad(update(table="persons"), "TABLE_NOT_FOUND", "table", None, 404),
    Bad(remove(), "INVALID_REQUEST", "filter"),
    Bad(remove(filter={}), "INVALID_REQUEST", "filter"),
    Bad(remove(filter=[]), "INVALID_REQUEST", "filter"),
    Bad(remove(filters={"and": []}), "INVALID_REQUEST", "filter"),
    Bad(remove(all=False), "INVALID_REQUEST", "filter"),
    Bad(remove(all=True, filter={"id": 1}), "INVALID_REQUEST", "all"),
    Bad(remove(filter="id > 1"), "INVALID_FILTER", "filter"),
    Bad(remove(all="yes"), "INVALID_REQUEST", "all"),
    Bad(remove(fliter={"id": 1}), "UNKNOWN_FIELD", "fliter", "filter"),
    Bad(remove(filter={"id": {"gt": None}}), "INVALID_FILTER", "filter.id.gt"),
    Bad(remove(table="peopl", all=True), "TABLE_NOT_FOUND", "table", "people", 404),
    Bad(upsert({"name": "x"}), "INVALID_RECORD", "records[0].id"),
    Bad(upsert({"id": 3}, {"id": 3}), "INVALID_RECORD", "records[1]"),
    Bad(upsert({"id": 3, "nmae": "x"}), "INVALID_RECORD", "records[0].nmae", "name"),
    Bad(upsert({"id": 3}, partition_cols=["id"]), "INVALID_REQUEST", "partition_cols"),
    Bad(upsert({"n": 3}, key_cols=["n"], partition_cols=["n"], **DAILY), "INVALID_REQUEST", "partition_cols"),
    Bad(upsert({"id": 3}, key_cols=["nmae"]), "UNKNOWN_FIELD", "key_cols[0]", "name"),
    Bad(upsert({"id": 3}, key_cols=["id", "id"]), "INVALID_REQUEST", "key_cols[1]"),
    Bad(upsert({"id": 3}, key_cols=[]), "INVALID_REQUEST", "key_cols"),
    Bad(upsert({"id": 3}, key_cols="id"), "INVALID_REQUEST", "key_cols"),
    Bad(upsert({"day": "2024-01-01"}, table="daily"), "INVALID_REQUEST", "key_cols"),
    Bad(upsert({"id": 3}, update_cols=["id"]), "INVALID_REQUEST", "update_cols[0]"),
    Bad(upsert({"id": 3}, update_cols=["nmae"]), "UNKNOWN_FIELD", "update_cols[0]", "name"),
]
UPKEEP = [
    Bad({"operation": "COMPACT", "table": "peoples"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "COMPACT", "froce": True}, "UNKNOWN_FIELD", "froce", "force"),
    Bad({"operation": "COMPACT", "force": 1}, "INVALID_REQUEST", "force"),
    Bad({"operation": "COMPACT", "max_files": 1}, "INVALID_REQUEST", "max_files"),
    Bad({"operation": "COMPACT", "max_files": 2**31}, "INVALID_REQUEST", "max_files"),
    Bad({"operation": "COMPACT", "target_file_size_mb": 0}, "INVALID_REQUEST", "target_file_size_mb"),
    Bad({"operation": "COMPACT", "target_file_size_mb": 2**43}, "INVALID_REQUEST", "target_file_size_mb"),
    Bad({"operation": "COMPACT", "max_file_size_mb": 128}, "INVALID_REQUEST", "max_file_size_mb"),
    Bad(
        {"operation": "COMPACT", "max_file_size_mb": 64, "target_file_size_mb": 64, "dry_run": True},
        "INVALID_REQUEST",
        "max_file_size_mb",
    ),
    Bad(
        {"operation": "COMPACT", "strategy": "zorder", "sort_by": ["id", "home.city"]}, "INVALID_REQUEST", "sort_by[1]"
    ),
    Bad({"operation": "COMPACT", **DAILY, "strategy": "zorder", "sort_by": ["day"]}, "INVALID_REQUEST", "sort_by"),
    Bad({"operation": "COMPACT", "snapshot_retention_hours": -1}, "INVALID_REQUEST", "snapshot_retention_hours"),
    Bad({"operation": "COMPACT", "snapshot_retention_hours": 10**400}, "INVALID_REQUEST", "snapshot_retention_hours"),
    Bad({"operation": "COMPACT", "partition_filter": {"id": 1}}, "INVALID_FILTER", "partition_filter"),
    Bad({"operation": "COMPACT", **DAILY, "partition_filter": {"n": 1}}, "INVALID_FILTER", "partition_filter"),
    Bad(
        {"operation": "COMPACT", **DAILY, "partition_filter": {"dya": 1}},
        "UNKNOWN_FIELD",
        "partition_filter.dya",
        "day",
    ),
    Bad(policy(), "INVALID_REQUEST", None),
    Bad(policy(strategy="zorder", sort_by=["home.city"]), "INVALID_REQUEST", "sort_by[0]"),
    Bad(policy(**DAILY, strategy="zorder", sort_by=["day"]), "INVALID_REQUEST", "sort_by"),
    Bad(policy(table="peopel", mode="auto"), "TABLE_NOT_FOUND", "table", "people", 404),
    Bad(policy(mode="autp"), "INVALID_REQUEST", "mode"),
    Bad(policy(mdoe="auto"), "UNKNOWN_FIELD", "mdoe", "mode"),
    Bad(policy(strategy="zorder"), "INVALID_REQUEST", "sort_by"),
    Bad(policy(strategy="sort", sort_by=[]), "INVALID_REQUEST", "sort_by"),
    Bad(policy(sort_by=["id", "nmae"]), "UNKNOWN_FIELD", "sort_by[1]", "name"),
    Bad(policy(sort_by=["id", "id"]), "INVALID_REQUEST", "sort_by[1]"),
    Bad(policy(sort_by=["tags"]), "INVALID_REQUEST", "sort_by[0]"),
    Bad(policy(sort_by="id"), "INVALID_REQUEST", "sort_by"),
    Bad(policy(small_file_threshold_mb=128), "INVALID_REQUEST", "small_file_threshold_mb"),
    Bad(policy(min_files_to_compact=1), "INVALID_REQUEST", "min_files_to_compact"),
    Bad(policy(target_file_size_mb=0), "INVALID_REQUEST", "target_file_size_mb"),
    Bad(policy(window="25:00-26:00"), "INVALID_REQUEST", "window"),
    Bad(policy(window="01:00-02:00 Europe/Zurick"), "INVALID_REQUEST", "window", "Europe/Zurich"),
    Bad({"operation": "LIST_PARTITIONS", "table": "peopel"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "LIST_PARTITIONS", "limit": 0}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "LIST_PARTITIONS", "limti": 5}, "UNKNOWN_FIELD", "limti", "limit"),
    Bad({"operation": "LIST_PARTITIONS", "partition_filter": {"id": 1}}, "INVALID_FILTER", "partition_filter"),
    Bad({"operation": "LIST_PARTITIONS", **DAILY, "partition_filter": {"n": 1}}, "INVALID_FILTER", "partition_filter"),
    Bad({"operation": "COMPACTION_LOG", "table": "peopel"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "COMPACTION_LOG", "before": "yesterday"}, "INVALID_REQUEST", "before"),
    Bad({"operation": "COMPACTION_LOG", "before": 5}, "INVALID_REQUEST", "before"),
    Bad({"operation": "COMPACTION_LOG", "limit": 1001}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "COMPACTION_LOG", "befor": "2024"}, "UNKNOWN_FIELD", "befor", "before"),
    Bad({"operation": "CLEAN_ORPHANS", "table": "peoples"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "CLEAN_ORPHANS", "older_than": 72}, "UNKNOWN_FIELD", "older_than", "older_than_hours"),
    Bad({"operation": "CLEAN_ORPHANS", "dryrun": True}, "UNKNOWN_FIELD", "dryrun", "dry_run"),
    Bad({"operation": "CLEAN_ORPHANS", "dry_run": "yes"}, "INVALID_REQUEST", "dry_run"),
    Bad({"operation": "CLEAN_ORPHANS", "older_than_hours": -1}, "INVALID_REQUEST", "older_than_hours"),
    Bad({"operation": "CLEAN_ORPHANS", "older_than_hours": 10**400}, "INVALID_REQUEST", "older_than_hours"),
    Bad({"operation": "CLEAN_ORPHANS", "older_than_hours": 1.5}, "INVALID_REQUEST", "older_than_hours"),
    Bad({"operation": "DESCRIBE_TABLE", "table": "persons"}, "TABLE_NOT_FOUND", "table", None, 404),
    Bad({"operation": "DESCRIBE_TABLE", "table": "People"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "RECOMMEND", "table": None, "limit": 0}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "RECOMMEND", "table": None, "limit": 10_001}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "RECOMMEND", "table": None, "limit": "1"}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "RECOMMEND", "table": None, "namespace": "a b"}, "INVALID_REQUEST", "namespace"),
    Bad({"operation": "RECOMMEND", "table": None, "namespace": 1}, "INVALID_REQUEST", "namespace"),
    Bad({"operation": "RECOMMEND", "table": None, "limt": 1}, "UNKNOWN_FIELD", "limt", "limit"),
    Bad({"operation": "RECOMMEND"}, "UNKNOWN_FIELD", "table"),
    Bad({"operation": "DROP_TABLE", "table": "peopl"}, "TABLE_NOT_FOUND", "table", "people", 404),
    Bad({"operation": "DROP_TABLE", "purge": True}, "CONFIRMATION_REQUIRED", "confirm"),
    Bad({"operation": "DROP_TABLE", "purge": True, "confirm": "yes"}, "INVALID_REQUEST", "confirm"),
    Bad({"operation": "DROP_TABLE", "prge": True}, "UNKNOWN_FIELD", "prge", "purge"),
]
NIGHTLY = {"name": "nightly", "cron": "0 2 * * *", "task": {"operation": "COMPACT"}}


def schedule(**parts: Any) -> dict[str, Any]:
    return {"operation": "CREATE_SCHEDULE", **NIGHTLY, **parts}


SCHEDULES = [
    Bad(schedule(cron="0 2 * *"), "INVALID_REQUEST", "cron"),
    Bad(schedule(cron="0 0 2 * * *"), "INVALID_REQUEST", "cron"),
    Bad(schedule(cron="60 2 * * *"), "INVALID_REQUEST", "cron"),
    Bad(schedule(cron="0 2 30 2 *"), "INVALID_REQUEST", "cron"),
    Bad(schedule(cron=5), "INVALID_REQUEST", "cron"),
    Bad(schedule(cron="*" * 201), "INVALID_REQUEST", "cron"),
    Bad(schedule(timezone="Europe/Zuerich"), "INVALID_REQUEST", "timezone", "Europe/Zurich"),
    Bad(schedule(timezone="Middle Earth"), "INVALID_REQUEST", "timezone"),
    Bad(schedule(delay="soon"), "INVALID_REQUEST", "delay"),
    Bad(schedule(delay="32d"), "INVALID_REQUEST", "delay"),
    Bad(schedule(name="every night"), "INVALID_REQUEST", "name"),
    Bad(schedule(name=None), "INVALID_REQUEST", "name"),
    Bad(schedule(table="peopl"), "TABLE_NOT_FOUND", "table", "people", 404),
    Bad(schedule(table=None, scope="table"), "INVALID_REQUEST", "table"),
    Bad(schedule(scope="namespace"), "INVALID_REQUEST", "table"),
    Bad(schedule(scope="all"), "INVALID_REQUEST", "scope"),
    Bad(schedule(scope="tenant"), "INVALID_REQUEST", "table"),
    Bad(schedule(scope="tenant", table=None, namespace="default"), "INVALID_REQUEST", "namespace"),
    Bad(schedule(scope="tabel"), "INVALID_REQUEST", "scope"),
    Bad(schedule(enabled="yes"), "INVALID_REQUEST", "enabled"),
    Bad(schedule(crno="0 2 * * *"), "UNKNOWN_FIELD", "crno", "cron"),
    Bad(schedule(task="COMPACT"), "INVALID_REQUEST", "task"),
    Bad(schedule(task={}), "INVALID_REQUEST", "task.operation"),
    Bad(schedule(task={"operation": "COMAPCT"}), "UNKNOWN_OPERATION", "task.operation", "COMPACT"),
    Bad(schedule(task={"operation": "DROP_TABLE"}), "UNKNOWN_OPERATION", "task.operation"),
    Bad(schedule(task={"operation": "COMPACT", "table": "people"}), "UNKNOWN_FIELD", "task.table"),
    Bad(schedule(task={"operation": "COMPACT", "tenant_id": "another"}), "UNKNOWN_FIELD", "task.tenant_id"),
    Bad(schedule(task={"operation": "COMPACT", "idempotency_key": "k"}), "UNKNOWN_FIELD", "task.idempotency_key"),
    Bad(schedule(task={"operation": "COMPACT", "froce": True}), "UNKNOWN_FIELD", "task.froce", "force"),
    Bad(schedule(task={"operation": "COMPACT", "max_files": 1}), "INVALID_REQUEST", "task.max_files"),
    Bad(schedule(task={"operation": "COMPACT", "partition_filter": 2**70}), "INVALID_REQUEST", "task"),
    Bad({"operation": "RUN_SCHEDULE", "table": None, "name": "never"}, "SCHEDULE_NOT_FOUND", "name", None, 404),
    Bad({"operation": "RUN_SCHEDULE", "table": None}, "INVALID_REQUEST", "name"),
    Bad({"operation": "RUN_SCHEDULE", "table": None, "name": "n", "wiat": True}, "UNKNOWN_FIELD", "wiat", "wait"),
    Bad({"operation": "DELETE_SCHEDULE", "table": None, "name": "never"}, "SCHEDULE_NOT_FOUND", "name", None, 404),
    Bad({"operation": "DELETE_SCHEDULE", "table": None, "nmae": "n"}, "UNKNOWN_FIELD", "nmae", "name"),
    Bad({"operation": "LIST_SCHEDULES", "runs": 51}, "INVALID_REQUEST", "runs"),
    Bad({"operation": "LIST_SCHEDULES", "nam": "n"}, "UNKNOWN_FIELD", "nam", "name"),
    Bad({"operation": "LIST_JOBS", "table": None, "limit": 0}, "INVALID_REQUEST", "limit"),
    Bad({"operation": "LIST_JOBS", "table": None, "limt": 5}, "UNKNOWN_FIELD", "limt", "limit"),
]
ALL = [*ANY_REQUEST, *CREATE_TABLE, *WRITE, *QUERY, *EDITS, *UPKEEP, *SCHEDULES]


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    """A service without Spark: whatever is refused here is refused before any would be needed."""
    with served(app) as firn:
        for request in GIVEN:
            if request["operation"] == "CREATE_TABLE":
                firn.ok(request)
        yield firn


@pytest.fixture(scope="module")
def states_before(firn: Firn) -> list[Any]:
    return table_states(firn)


@pytest.fixture(autouse=True)
def _nothing_changes(firn: Firn, states_before: list[Any]) -> Iterator[None]:
    """Every test here asks for what must not be done."""
    yield
    assert table_states(firn) == states_before


@pytest.mark.parametrize(
    "entry_points", [("http",), pytest.param(("http", "v1 text"), marks=pytest.mark.thorough)], ids="+".join
)
@pytest.mark.parametrize("bad", ALL, ids=str)
def test_every_entry_point_refuses_a_bad_request_in_the_same_way(
    bad: Bad, entry_points: tuple[str, ...], firn: Firn
) -> None:
    check(bad, entry_points, firn)


def test_a_refused_record_is_named_by_its_place_and_its_field(firn: Firn) -> None:
    for request in (
        write({"id": 3}, {"id": 4, "home": {"city": 5}}),
        upsert({"id": 3}, {"id": 4, "home": {"city": 5}}),
    ):
        error = firn.fail({**TABLE, **request}, "INVALID_RECORD", 400)
        assert error["details"] == {"record": 1, "field": "home.city"}


BODIES = {
    "nothing": b"",
    "half": b'{"operation": ',
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "two": b"{} {}",
    "not UTF-8": b'{"operation": "\xff"}',
    "UTF-16": '{"operation": "LIST_TABLES"}'.encode("utf-16"),
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "NaN": b'{"operation": "WRITE", "tenant_id": "refusals", "table": "people", "records": [{"id": NaN}]}',
    "5000 digits": b'{"operation": "WRITE", "tenant_id": "refusals", "table": "people", "records": [{"id": %s}]}'
    % (b"9" * 5000),
    "half of a pair": rb'{"operation": "WRITE", "tenant_id": "refusals", "table": "people", '
    rb'"records": [{"id": 3, "name": "\ud83d"}]}',
    "half of a pair as a key": rb'{"operation": "LIST_TABLES", "tenant_id": "refusals", "\udfff": 1}',
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_request_is_refused(body: str, firn: Firn) -> None:
    error = firn.fail(BODIES[body], "INVALID_REQUEST", 400)
    check_message(error["message"])


DEEP = {
    "records": '{"operation": "WRITE", "tenant_id": "refusals", "table": "people", "records": %s}',
    "record": '{"operation": "WRITE", "tenant_id": "refusals", "table": "people", "records": [{"id": %s}]}',
    "filter": '{"operation": "QUERY", "tenant_id": "refusals", "table": "people", "filter": %s}',
    "join": '{"operation": "QUERY", "tenant_id": "refusals", "table": "people", '
    '"join": [{"table": "daily", "on": %s}]}',
    "schema": '{"operation": "CREATE_TABLE", "tenant_id": "refusals", "table": "deep", "schema": %s}',
    "unknown": '{"operation": "LIST_TABLES", "tenant_id": "refusals", "deep": %s}',
}


@pytest.mark.parametrize("shape", SHAPES, ids=["lists", "filters"])
@pytest.mark.parametrize("where", DEEP)
def test_deep_nesting_anywhere_is_refused_and_breaks_nothing(where: str, shape: tuple[str, str], firn: Firn) -> None:
    check_deep_nesting(DEEP[where], shape, firn)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda name: {"operation": name},
        lambda name: query(**{name: 1}),
        lambda name: query(filter={name: 1}),
        lambda name: query(filter={"id": {name: 1}}),
        lambda name: query(projection=[{"field": "born", "extract": name}]),
        lambda name: query(projection=[{"field": "id", "alias": name}, {"field": "age", "alias": name}]),
        lambda name: write({"id": 3, name: 1}),
        lambda name: update(updates={name: 1}),
        lambda name: create(properties={name: 1}),
        lambda name: fields(**{name: {"type": "lnog"}}),
    ],
)
def test_a_name_of_any_length_is_quoted_in_one_short_line(request_of: Any, firn: Firn) -> None:
    for name in ("x" * 50_000, "a\r\nb\u2028c\x1b[31m"):
        status, body = ENTRY_POINTS["http"](firn, {**TABLE, **request_of(name)})
        assert status == 400, body
        check_message(body["error"]["message"])
        assert len(body["error"].get("field", "")) <= 400
