"""Which tables would write exported files over those of another one."""

from collections.abc import Iterator, Sequence

from service.errors import InvalidRequest
from service.ingest.sources.roots import Roots
from service.ledger.ingestions import RegisteredTable
from service.model.ingest.table_file import TableFile

BASE_PATH = "config.storage.base_path"
SENDERS = "_firn_senders"
"""The folder, in that of a table, with a folder for each sender from whom a policy hides a part of the table."""


def check_folder(
    config: TableFile, tenant: str, others: Sequence[RegisteredTable], roots: Roots, field: str = BASE_PATH
) -> None:
    """Raise InvalidRequest if the exported files of a tenant's table and of another one could have the same path."""
    base = base_of(config, roots.of(tenant))
    if base is None:
        return
    if any(SENDERS in path for path in _paths(config, base)):
        raise InvalidRequest.at(
            field, f"{SENDERS!r} is the folder of files for senders whom a policy binds; rename yours"
        )
    for one in others:
        if '"storage"' not in one.table_file:
            continue
        other = TableFile.model_validate_json(one.table_file)
        try:
            place = base_of(other, roots.of(one.name.tenant))
        except InvalidRequest:
            continue  # it is in no allowed folder now, so that nothing is written there
        if place is None or (place != base and not _may_meet(config, base, other, place)):
            continue
        who = "another table exports to this folder, or to one in it or above it"
        if one.name.tenant == tenant:
            who = f"table {one.name.table!r} of namespace {one.name.namespace!r} exports to {place!r}"
        raise InvalidRequest.at(
            field, f"{who}, so that the files of one could replace those of the other; choose another folder"
        )


def base_of(config: TableFile, roots: Roots) -> str | None:
    """The folder of a table's exported files, as an absolute path or a URL."""
    if config.storage is None:
        return None
    return roots.resolve(config.storage.base_path, BASE_PATH).rstrip("/")


def _may_meet(one: TableFile, base: str, other: TableFile, place: str) -> bool:
    """Whether a file of one table could have the path of a file of the other."""
    return any(_alike(a, b) for a in _paths(one, base) for b in _paths(other, place))


def _paths(config: TableFile, base: str) -> Iterator[list[str]]:
    for pattern in (config.daily_pattern, config.period_pattern):
        yield [part for part in f"{base}/{pattern}".split("/") if part != "."]


def _alike(a: list[str], b: list[str]) -> bool:
    """Whether two patterns may be filled to the same path: parts of a date have no slash."""
    return len(a) == len(b) and all(x == y or "{" in x or "{" in y for x, y in zip(a, b, strict=True))
