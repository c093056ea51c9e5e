"""The words of requests and responses: one name for one thing, and no field without a value."""

import dataclasses
import re
import types
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from handlers import discover
from service.api.resources.jobs import JobResult
from service.jobs.job import BulkProgress
from service.maintenance.compact.report import CompactionProgress
from service.maintenance.repartition.report import RepartitionProgress
from service.operations.operation import DryRunResult, Operation, Plan, PreviewableRequest

RESULTS = dict.fromkeys([JobResult, *(model for o in discover() for model in (o.result, *o.also))])


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models in a type, and those in their fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from models(info.annotation)
    for part in get_args(kind):
        yield from models(part)


SHOWN = list(dict.fromkeys(model for result in RESULTS for model in models(result)))


def allows_null(kind: Any) -> bool:
    if kind is Any or kind is None or kind is types.NoneType:
        return True
    return get_origin(kind) in (Union, types.UnionType) and any(map(allows_null, get_args(kind)))


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model.__name__)
def test_a_field_without_a_value_is_absent_and_the_schema_says_so(model: type[BaseModel]) -> None:
    schema = model.model_json_schema(mode="serialization")
    for name, info in model.model_fields.items():
        if allows_null(info.annotation):
            shown = info.serialization_alias or name
            assert shown not in schema.get("required", ()), f"{model.__name__}.{shown} must be able to be absent"
            field = schema["properties"][shown]
            assert "null" not in str(field.get("anyOf", field.get("type"))), f"{model.__name__}.{shown} may be null"
            assert "default" not in field
            assert "null" not in (info.description or ""), f"{model.__name__}.{shown} is never null"


# Names from earlier requirements that stay, and why they break a rule.
ROW_NAMES = {
    ("QueryMetadata", "row_count"): "QUERY's figures have the names that its first requirement gave them",
    ("Description", "row_count"): "DESCRIBE_TABLE's too",
    ("DifferingRowEntry", "row"): "it counts nothing: it is a row",
    ("RoleRule", "rows"): "it counts nothing: it is a filter of rows",
    ("EditOverrides", "row_level"): "it counts nothing: Iceberg calls these changes row-level",
}
RATES = {("Recommendation", "predicted_saving_ms_per_hour"): "not a duration, but one per hour"}
COUNT_OF_ROWS = re.compile(
    r"((its|all|their|the) )?(counted |removed |restored |existing )?(rows|duplicates)\b|records written"
)
POINT_IN_TIME = re.compile(r"(until )?when\b|only files from before this time")
DURATION = re.compile(r"how long it took|the time that|how long a|median planning time")
PROGRESS = (BulkProgress, CompactionProgress, RepartitionProgress)


def fields(which: Iterable[type[BaseModel]]) -> Iterator[tuple[tuple[str, str], Any, str]]:
    """The model and name of each field, its type without null, and its description."""
    for model in which:
        for name, info in model.model_fields.items():
            kinds = [kind for kind in get_args(info.annotation) or [info.annotation] if kind is not types.NoneType]
            yield (model.__name__, info.serialization_alias or name), kinds[0], info.description or ""


REQUESTS = list(dict.fromkeys(model for o in discover() for model in models(o.request)))
EVERY = list(fields([*SHOWN, *REQUESTS]))


def test_what_counts_rows_is_called_records() -> None:
    named = {place for place, _, _ in EVERY if "row" in place[1]}
    assert named == set(ROW_NAMES)
    for place, kind, description in fields(SHOWN):
        if kind is int and COUNT_OF_ROWS.match(description):
            assert place[1].startswith("records") or place in ROW_NAMES, place


def test_a_point_in_time_ends_in_at_and_is_one_in_iso_8601() -> None:
    assert {place for place, kind, _ in EVERY if (kind is datetime) != place[1].endswith("_at")} == set()
    for place, kind, description in fields(SHOWN):
        if POINT_IN_TIME.match(description):
            assert kind in (datetime, str), place
            assert place[1].endswith("_at") or place[1] == "window", place


def test_a_duration_ends_in_ms() -> None:
    units = re.compile(r"_(s|sec|secs|seconds|millis|minutes|us)$")
    assert [place for place, _, _ in EVERY if units.search(place[1])] == []
    assert {place for place, _, _ in EVERY if "_ms" in place[1] and not place[1].endswith("_ms")} == set(RATES)
    for place, kind, description in fields(SHOWN):
        if kind in (int, float) and DURATION.match(description):
            assert place[1].endswith("_ms") or place in RATES, place


def test_who_started_something_has_one_name_everywhere() -> None:
    assert {place[1] for place, _, description in fields(SHOWN) if "request <id>" in description} == {"requested_by"}
    wrong = {place for place, _, _ in EVERY if re.search(r"asked|begun|_until$|(^|_)run_id$", place[1])}
    assert wrong == {("IngestResult", "run_id"), ("Replay", "run_id")}, (
        "of an ingest, as its log and the quarantine call it"
    )


def test_the_progress_of_jobs_uses_the_same_words() -> None:
    names = {field.name for progress in PROGRESS for field in dataclasses.fields(progress)}
    assert {"records", "bytes", "files_done", "bytes_done"} <= names
    assert not [name for name in names if "row" in name]


PREVIEWABLE = [o for o in discover() if issubclass(o.request, PreviewableRequest)]
DRY_RUN = {"success", "dry_run", "plan", "metadata"}
# The words for what would happen; the last group is what single operations have besides.
PLANNED = re.compile(
    r"records(_(inserted|updated|unchanged|deleted|removed|restored|before|after))?"
    r"|files_(added|removed|after|affected)|bytes_(added|removed)|partitions_(affected|after)"
    r"|sample|plan_token|expires_at|reason|estimated"
    r"|scanned_files|undone_operation|from_snapshot|to_snapshot|changes_undone|group_count|groups|batches|partition"
    r"|files|cutoff_at|held_back_by"
    r"|periods|periods_skipped|files_written|files_current|changes"
    r"|date|period|records_(read|ingested|rejected|replaced)|rejects|drift|unchanged|(files|bytes)_rewritten|bytes_read"
    r"|namespace|table|change|columns_(added|removed)|(not_)?incremental|classes|schema|sources|rebuilds|dependents"
    r"|content_hash|days(_(ingested|unchanged|missing|failed))?|source|changes|dataset|warnings"
)


def test_every_operation_with_a_dry_run_is_known() -> None:
    ingestion = {"INGEST", "INGEST_RANGE", "REPLAY", "ACCEPT_DRIFT", "EXPORT", "APPLY_TABLE"}
    edits = {"WRITE", "UPDATE", "DELETE", "UPSERT", "DEDUPLICATE", "UNDO", "ROLLBACK", "RESTORE_BACKUP"}
    others = {"COMPACT", "REPARTITION", "CLEAN_ORPHANS", "CREATE_DYNAMIC_TABLE"}
    assert {o.name for o in PREVIEWABLE} == edits | ingestion | others
    assert {o.name for o in discover() if "dry_run" in o.request.model_fields} == {o.name for o in PREVIEWABLE}


@pytest.mark.parametrize("operation", PREVIEWABLE, ids=lambda operation: operation.name)
def test_a_dry_run_is_answered_by_one_plan_with_nothing_beside_it(operation: Operation) -> None:
    [preview] = [model for model in operation.also if issubclass(model, DryRunResult)]
    assert {"success", *preview.model_fields} == DRY_RUN
    plan = preview.model_fields["plan"].annotation
    assert isinstance(plan, type)
    assert issubclass(plan, Plan)
    names = {info.serialization_alias or name for name, info in plan.model_fields.items()}
    assert {name for name in names if not PLANNED.fullmatch(name)} == set()
    assert not set(operation.result.model_fields) & {"dry_run", "plan", "sample", "plan_token"}


@pytest.mark.parametrize("operation", PREVIEWABLE, ids=lambda operation: operation.name)
def test_the_words_of_a_plan_are_those_of_the_response(operation: Operation) -> None:
    [preview] = [model for model in operation.also if issubclass(model, DryRunResult)]
    done = {name for model in models(operation.result) for name in model.model_fields}
    planned = {place[1]: place for place, kind, _ in fields([preview.model_fields["plan"].annotation]) if kind is int}
    own = {"group_count", "bytes_removed"} | ({"files_removed"} if operation.name == "REPARTITION" else set())
    own |= {"partitions_affected"} if operation.name == "COMPACT" else set()
    assert planned.keys() - done <= own


@pytest.mark.parametrize("operation", PREVIEWABLE, ids=lambda operation: operation.name)
def test_every_dry_run_has_an_example(operation: Operation) -> None:
    shown = [set(example.answer) for example in operation.examples if example.request.get("dry_run")]
    assert shown
    assert all(answer == DRY_RUN for answer in shown)
