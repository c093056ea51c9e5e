"""`firn table history`, `diff` and `rollback`, and `firn backup …`: what was."""

from typing import Any

from service.cli.command import Answer, Args, Command, Request, argument, flag
from service.cli.examples import past as examples
from service.cli.files import address
from service.cli.page import Column, Page, count, moment, number, size
from service.cli.tables import TABLE

BACKUP = argument("backup", metavar="BACKUP", help="the backup's name, as `firn backup list` has it")


def _history(args: Args) -> Request:
    request: Request = {"operation": "HISTORY", **address(args)}
    return {**request, "limit": args.limit} if args.limit else request


def _told_history(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("SNAPSHOT", right=True), Column("TIME", whole=True), Column("OPERATION")]
    columns += [Column("ROWS", right=True), Column("FILES", right=True)]
    page.table(
        columns,
        [
            [s["snapshot_id"], moment(s["timestamp"]), s["operation"], _change(s, "rows"), _change(s, "files")]
            for s in answer["snapshots"]
        ],
    )
    page.line(count(len(answer["snapshots"]), "snapshot"))


def _change(snapshot: dict[str, Any], what: str) -> str:
    added, removed = snapshot.get(f"{what}_added"), snapshot.get(f"{what}_removed")
    told = [f"{sign}{number(value)}" for sign, value in (("+", added), ("-", removed)) if value]
    return " ".join(told) or "-"


def _diff(args: Args) -> Request:
    return {
        "operation": "DIFF",
        **address(args),
        "from_snapshot": _snapshot(args.from_snapshot),
        "to_snapshot": _snapshot(args.to_snapshot),
    }


def _differing(answer: Answer, args: Args, page: Page) -> None:
    page.line(", ".join(f"{number(answer[kind])} {kind}" for kind in ("inserted", "deleted", "updated")))


def _rollback(args: Args) -> Request:
    where = _snapshot(args.to)
    named = {"snapshot_id": where} if isinstance(where, int) else {"tag": where}
    return {"operation": "ROLLBACK", **address(args), **named}


def _ask_rollback(request: Request) -> str:
    where = request.get("snapshot_id") or request.get("tag")
    table = f"{request['namespace']}.{request['table']}"
    return f"The table {table} goes back to {where}; what was written since is gone from it."


def _snapshot(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _backups(answer: Answer, args: Args, page: Page) -> None:
    columns = [Column("BACKUP", name=True), Column("BEFORE"), Column("ROWS", right=True), Column("SIZE", right=True)]
    page.table(
        [*columns, Column("KEPT UNTIL", whole=True)],
        [
            [b["name"], b["operation"], number(b["records"]), size(b["bytes"]), moment(b["expires_at"])]
            for b in answer["backups"]
        ],
    )


def _restore(args: Args) -> Request:
    request: Request = {"operation": "RESTORE_BACKUP", **address(args), "name": args.backup}
    if args.keep:
        request["create_backup"] = True
    if args.dry_run:
        request["dry_run"] = True
    return request


def _ask_restore(request: Request) -> str | None:
    if request.get("dry_run") or request.get("create_backup"):
        return None
    table = f"{request['namespace']}.{request['table']}"
    return f"The table {table} gets the rows of the backup; those that it has now are kept only with --keep."


def _restored(answer: Answer, args: Args, page: Page) -> None:
    change = f"{count(answer['records_before'], 'row')} before, {number(answer['records_after'])} after"
    if answer["restored"]:
        page.line(f"restored: {change}")
    else:
        page.line(f"not restored: {answer['reason']}: {change}")
    if answer.get("backup"):
        page.line(f"the state before is kept as {answer['backup']}")


def _ask_delete(request: Request) -> str:
    return f"The backup {request['name']} is deleted, and can be restored no more."


def _lines(text: str) -> Any:
    return lambda answer, args, page: page.line(text)


COMMANDS = (
    Command(
        "table history",
        "Show a table's snapshots: what each did, and when.",
        (TABLE, argument("--limit", type=int, metavar="N", help="only the latest so many")),
        examples.HISTORY,
        request=_history,
        show=_told_history,
    ),
    Command(
        "table diff",
        "Show which rows differ between two snapshots.",
        (
            TABLE,
            argument("from_snapshot", metavar="FROM", help="the earlier snapshot's id"),
            argument("to_snapshot", metavar="TO", help="the later snapshot's id"),
        ),
        examples.DIFF,
        request=_diff,
        show=_differing,
        spark=True,
    ),
    Command(
        "table rollback",
        "Take a table back to one of its snapshots.",
        (TABLE, argument("to", metavar="SNAPSHOT|TAG", help="the snapshot's id, or a tag")),
        examples.ROLLBACK,
        request=_rollback,
        show=lambda answer, args, page: page.line(
            f"{address(args)['namespace']}.{address(args)['table']} is at {args.to}"
        ),
        question=_ask_rollback,
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
        (
            TABLE,
            BACKUP,
            flag("--keep", "keep what the table holds now as another backup"),
            flag("--dry-run", "only say what would be done"),
        ),
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
        show=_lines("deleted"),
        question=_ask_delete,
    ),
)
