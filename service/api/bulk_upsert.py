"""A bulk load with mode=upsert: its parameters, and the response with UPSERT's counts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from handlers.upsert import UpsertResult, upserted
from service.api.exchange import ApiState
from service.catalog.tables import Table
from service.commits.backups import Backups
from service.commits.commit import CommitResult
from service.commits.small_files import SmallFileChecks
from service.edits.edits import EditCounts, EditOutcome
from service.engine.iceberg.swap import Tag
from service.errors import InvalidRequest
from service.model.call import Call
from service.operations.bulk_upserts import BulkUpserts
from service.operations.edit_requests import advice, edit_figures
from service.operations.operation import Metadata
from service.writes.bulk.load import Load
from service.writes.bulk.upsert import OnDuplicate, OnMultiple, UpsertOptions

PARAMETERS = ("key_cols", "on_duplicate", "on_multiple", "create_backup", "backup_retention_hours")
_MOST_HOURS = 1_000_000


@dataclass(frozen=True)
class BulkUpsertParameters:
    """What a load with mode=upsert asks for."""

    options: UpsertOptions
    create_backup: bool | None = None
    backup_retention_hours: int | None = None

    def backup(self, backups: Backups) -> Callable[[Table], Tag | None]:
        """The tag for the backup of a table's previous state, if one is wanted."""
        return lambda table: backups.wanted(table, self.create_backup, self.backup_retention_hours, "UPSERT")


def read_parameters(mode: str, query: Mapping[str, str]) -> BulkUpsertParameters | None:
    """The parameters of an upsert; None for a load that appends, for which they have no meaning."""
    if mode != "upsert":
        sent = next((name for name in PARAMETERS if name in query), None)
        if sent is not None:
            raise InvalidRequest(
                f"{sent} has no meaning without mode=upsert; send that too, or leave it out", field=sent
            )
        return None
    keys = query.get("key_cols")
    hours = query.get("backup_retention_hours")
    return BulkUpsertParameters(
        UpsertOptions(
            None if keys is None else tuple(name for name in keys.split(",") if name),
            cast(OnDuplicate, _one_of(query, "on_duplicate", get_args(OnDuplicate))),
            cast(OnMultiple, _one_of(query, "on_multiple", get_args(OnMultiple))),
        ),
        {None: None, "true": True, "false": False}[_one_of(query, "create_backup", (None, "true", "false"))],
        None if hours is None else _hours(hours),
    )


def finish(api: ApiState, load: Load, parameters: BulkUpsertParameters, call: Call) -> UpsertResult:
    """Merge a staged load into its table, and say what it did."""
    parts = api.service.parts

    def result(outcome: EditOutcome, **more: Any) -> UpsertResult:
        replaces = parameters.options.on_multiple == "replace"
        fields = {**upserted(outcome.counts, replaces=replaces), **edit_figures(outcome.counts), **more}
        fields |= {"backup": outcome.backup, "metadata": Metadata(snapshot_id=outcome.commit.snapshot_id)}
        return UpsertResult.model_validate({"compaction_recommended": False, **fields})

    def promise(counts: EditCounts) -> bytes:
        return call.respond(result(EditOutcome(CommitResult(load.table, None), counts)))

    outcome = parts[BulkUpserts].finish(load, call, parameters.backup(parts[Backups]), promise)
    return result(outcome, **advice(outcome, parts[SmallFileChecks]))


def _one_of(query: Mapping[str, str], name: str, values: tuple[str | None, ...]) -> Any:
    """A parameter's value; by default the first."""
    value = query.get(name, values[0])
    if value not in values:
        allowed = " or ".join(str(one) for one in values if one is not None)
        raise InvalidRequest(f"{name} is {str(value)[:80]!r}; send {allowed}", field=name)
    return value


def _hours(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,6}", text, re.ASCII) or int(text) > _MOST_HOURS:
        raise InvalidRequest(
            f"backup_retention_hours is {text[:80]!r}; send a whole number from 1 to {_MOST_HOURS}",
            field="backup_retention_hours",
        )
    return int(text)
