"""`firn table history`, `diff` and `rollback`, and `firn backup …`: what was."""

from typing import Any

from service.cli.command import Answer, Args, Command, Request, argument, flag
from service.cli.examples import past as examples
from service.cli.files import address
from service.cli.page import Column, Page, count, datum, moment, number, size
from service.cli.tables import TABLE
from service.cli.values import full_name

BACKUP = argument("backup", metavar="BACKUP", help="the backup's name, as `firn backup list` has it")


def _history(args: Args) -> Request:
    wishes = {"limit": args.limit, "offset": args.offset}
    said = {name: value for name, value in wishes.items() if value is not None}
    return {"operation": "HISTORY", **address(args), **said}


def _told_history(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("SNAPSHOT", right=True), Column("TIME", whole=True), Column("OPERATION")]
    columns += [Column("ROWS", right=True), Column("FILES", right=True), Column("REQUEST", whole=True)]
    page.table(columns, [_snapshot_row(snapshot) for snapshot in answer["snapshots"]])
    shown, total = len(answer["snapshots"]), answer["total"]
    if shown == total:
        page.line(count(total, "snapshot"))
        return
    more = "; there are older ones, which --limit or --offset shows" if answer["has_more"] else ""
    page.line(f"{number(shown)} of {count(total, 'snapshot')}{more}")


def _snapshot_row(told: dict[str, Any]) -> list[Any]:
    rows = _change(("+", told["rows_added"]), ("-", told["rows_removed"]), ("~", told["rows_updated"]))
    files = _change(("+", told["files_added"]), ("-", told["files_removed"]))
    ids = told["request_ids"]
    asked = ids[0] if len(ids) == 1 else f"{number(len(ids))} requests" if ids else None
    return [told["snapshot_id"], moment(told["timestamp"]), told["operation"], rows, files, asked]


def _change(*figures: tuple[str, int]) -> str:
    return " ".join(f"{sign}{number(value)}" for sign, value in figures if value) or "-"


def _diff(args: Args) -> Request:
    request: Request = {"operation": "DIFF", **address(args), "from_snapshot": _snapshot(args.from_snapshot)}
    if args.to_snapshot:
        request["to_snapshot"] = _snapshot(args.to_snapshot)
    return {**request, "limit": args.limit}


_SIGNS = {"inserted": ("+",), "deleted": ("-",), "updated": ("-", "+")}


def _differing(answer: Answer, args: Args, page: Page) -> None:
    rows = [
        (sign, change["before"] if sign == "-" else change["after"])
        for change in answer["changes"]
        for sign in _SIGNS[change["change"]]
    ]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    if names:
        page.table(
            [Column(" "), *map(Column, names)],
            [[sign, *(datum(row.get(name)) for name in names)] for sign, row in rows],
        )
    told = ", ".join(f"{number(answer[f'records_{kind}'])} {kind}" for kind in _SIGNS)
    page.line(f"{told}; there are more, which --limit shows" if answer["has_more"] and args.limit else told)


def _rollback(args: Args) -> Request:
    where = _snapshot(args.to)
    named = {"snapshot_id": where} if isinstance(where, int) else {"tag": where}
    return {"operation": "ROLLBACK", **address(args), **named, **_kept(args)}


def _ask_rollback(request: Request) -> str | None:
    where = request.get("snapshot_id") or request.get("tag")
    if request.get("dry_run"):
        return None
    return f"The table {full_name(request)} gets the rows of {where} again; what was written since leaves it."


def _rolled_back(answer: Answer, args: Args, page: Page) -> None:
    _changed(answer["rolled_back"], "rolled back", answer, page)


def _undo(args: Args) -> Request:
    return {"operation": "UNDO", **address(args), "request_id": args.request_id, **_kept(args)}


def _ask_undo(request: Request) -> str | None:
    if request.get("dry_run"):
        return None
    return f"What the request {request['request_id']} did to the table {full_name(request)} is taken back."


def _undone(answer: Answer, args: Args, page: Page) -> None:
    done = "would be undone" if answer.get("dry_run") else "undone"
    told = f"{count(answer['records_removed'], 'row')} removed, {number(answer['records_restored'])} restored"
    page.line(f"{answer['undone_operation']} {done}: {told}")
    _tell_backup(answer, page)


def _kept(args: Args) -> Request:
    return {name: True for name, said in (("create_backup", args.keep), ("dry_run", args.dry_run)) if said}


def _changed(done: bool, word: str, answer: Answer, page: Page) -> None:
    change = f"{count(answer['records_before'], 'row')} before, {number(answer['records_after'])} after"
    page.line(f"{word}: {change}" if done else f"not {word}: {answer['reason']}: {change}")
    _tell_backup(answer, page)


def _tell_backup(answer: Answer, page: Page) -> None:
    if answer.get("backup"):
        page.line(f"the state before is kept as {answer['backup']}")


def _snapshot(text: str) -> int | str:
    """An id, if it can be one: they have no more digits."""
    return int(text) if text.isdecimal() and len(text) <= 19 else text


def _backups(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("BACKUP", whole=True), Column("KEPT UNTIL", whole=True), Column("ROWS", right=True)]
    page.table(
        [*columns, Column("SIZE", right=True), Column("BEFORE")],
        [
            [b["name"], moment(b["expires_at"]), number(b["records"]), size(b["bytes"]), b["operation"]]
            for b in answer["backups"]
        ],
    )
    page.line(count(len(answer["backups"]), "backup"))


def _restore(args: Args) -> Request:
    return {"operation": "RESTORE_BACKUP", **address(args), "name": args.backup, **_kept(args)}


def _ask_restore(request: Request) -> str | None:
    if request.get("dry_run") or request.get("create_backup"):
        return None
    return (
        f"The table {full_name(request)} gets the rows of the backup; those that it has now are kept only with --keep."
    )


def _restored(answer: Answer, args: Args, page: Page) -> None:
    _changed(answer["restored"], "restored", answer, page)


def _ask_delete(request: Request) -> str:
    return f"The backup {request['name']} is deleted, and can be restored no more."


KEEP = flag("--keep", "keep what the table holds now as a backup")
DRY_RUN = flag("--dry-run", "only say what would be done")
COMMANDS = (
    Command(
        "table history",
        "Show a table's snapshots: what each did, and when.",
        (
            TABLE,
            argument("--limit", type=int, metavar="N", help="at most so many; 100"),
            argument("--offset", type=int, metavar="N", help="skip so many of the latest first"),
        ),
        examples.HISTORY,
        request=_history,
        show=_told_history,
        details="Of the rows, + came, - went and ~ changed.",
    ),
    Command(
        "table diff",
        "Show which rows differ between two snapshots.",
        (
            TABLE,
            argument("from_snapshot", metavar="FROM", help="the state before: a snapshot's id, a tag or a time"),
            argument("to_snapshot", metavar="TO", nargs="?", help="the state after; what the table holds now"),
            argument("--limit", type=int, default=100, metavar="N", help="show at most so many changes; 100"),
        ),
        examples.DIFF,
        request=_diff,
        show=_differing,
        spark=True,
    ),
    Command(
        "table rollback",
        "Have a table hold the rows of one of its snapshots again.",
        (TABLE, argument("to", metavar="SNAPSHOT|TAG", help="the snapshot's id, or a tag"), KEEP, DRY_RUN),
        examples.ROLLBACK,
        request=_rollback,
        show=_rolled_back,
        question=_ask_rollback,
        spark=True,
    ),
    Command(
        "table undo",
        "Take one earlier change back, and keep what was written since.",
        (TABLE, argument("request_id", metavar="REQUEST", help="the change's request id"), KEEP, DRY_RUN),
        examples.UNDO,
        request=_undo,
        show=_undone,
        question=_ask_undo,
        spark=True,
    ),
    Command(
        "backup list",
        "List the backups of a table.",
        (TABLE,),
        examples.BACKUPS,
        request=lambda args: {"operation": "LIST_BACKUPS", **address(args)},
        show=_backups,
    ),
    Command(
        "backup restore",
        "Make a table hold what a backup holds.",
        (TABLE, BACKUP, KEEP, DRY_RUN),
        examples.RESTORE,
        request=_restore,
        show=_restored,
        question=_ask_restore,
        spark=True,
    ),
    Command(
        "backup delete",
        "Delete a backup.",
        (TABLE, BACKUP),
        examples.DELETE,
        request=lambda args: {"operation": "DELETE_BACKUP", **address(args), "name": args.backup},
        show=lambda answer, args, page: page.line("deleted"),
        question=_ask_delete,
    ),
)
