"""`firn table history`, `diff`, `rollback` and `undo`, and `firn backup …`."""

from typing import Any

from service.cli.command import Args, Command, Request, Response, argument, flag
from service.cli.commands.tables import TABLE, show_backup
from service.cli.examples import past as examples
from service.cli.files import table_address
from service.cli.terminal.format import format_data, format_number, format_size, format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name, given_fields, parse_number

_BACKUP = argument("backup", metavar="BACKUP", help="the backup's name, as `firn backup list` shows it")
_KEEP = flag("--keep", "keep the current state as a backup")
_DRY_RUN = flag("--dry-run", "only show what would be done")
_SIGNS = {"inserted": ("+",), "deleted": ("-",), "updated": ("-", "+")}


def _history(args: Args) -> Request:
    return {"operation": "HISTORY", **table_address(args), **given_fields(args, "limit", "offset")}


def _show_history(response: Response, args: Args, printer: Printer) -> None:
    columns = [PageColumn("SNAPSHOT", right=True), PageColumn("TIME", whole=True), PageColumn("OPERATION")]
    columns += [PageColumn("ROWS", right=True), PageColumn("FILES", right=True), PageColumn("REQUEST", whole=True)]
    printer.table(columns, [_snapshot_row(snapshot) for snapshot in response["snapshots"]])
    shown, total = len(response["snapshots"]), plural(response["total"], "snapshot")
    more = "; there are older ones, which --limit or --offset shows" if response["has_more"] else ""
    printer.line(total if shown == response["total"] else f"{format_number(shown)} of {total}{more}")


def _snapshot_row(snapshot: dict[str, Any]) -> list[Any]:
    rows = _counts(("+", snapshot["rows_added"]), ("-", snapshot["rows_removed"]), ("~", snapshot["rows_updated"]))
    files = _counts(("+", snapshot["files_added"]), ("-", snapshot["files_removed"]))
    ids = snapshot["request_ids"]
    requests = ids[0] if len(ids) == 1 else f"{format_number(len(ids))} requests" if ids else None
    return [
        snapshot["snapshot_id"],
        format_time(snapshot["timestamp"]),
        snapshot["operation"],
        rows,
        files,
        requests,
    ]


def _counts(*counts: tuple[str, int]) -> str:
    return " ".join(f"{sign}{format_number(count)}" for sign, count in counts if count) or "-"


def _diff(args: Args) -> Request:
    request: Request = {"operation": "DIFF", **table_address(args), "from_snapshot": _snapshot(args.from_snapshot)}
    if args.to_snapshot:
        request["to_snapshot"] = _snapshot(args.to_snapshot)
    return {**request, "limit": args.limit}


def _show_diff(response: Response, args: Args, printer: Printer) -> None:
    rows = [
        (sign, change["before"] if sign == "-" else change["after"])
        for change in response["changes"]
        for sign in _SIGNS[change["change"]]
    ]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    if names:
        printer.table(
            [PageColumn(" "), *map(PageColumn, names)],
            [[sign, *(format_data(row.get(name)) for name in names)] for sign, row in rows],
        )
    total = ", ".join(f"{format_number(response[f'records_{kind}'])} {kind}" for kind in _SIGNS)
    printer.line(f"{total}; there are more, which --limit shows" if response["has_more"] and args.limit else total)


def _rollback(args: Args) -> Request:
    snapshot = _snapshot(args.to)
    named = {"snapshot_id": snapshot} if isinstance(snapshot, int) else {"tag": snapshot}
    return {"operation": "ROLLBACK", **table_address(args), **named, **_options(args)}


def _question_before_rollback(request: Request) -> str | None:
    if request.get("dry_run"):
        return None
    snapshot = request.get("snapshot_id") or request.get("tag")
    return f"The table {full_name(request)} gets the rows of {snapshot} again; what was written since leaves it."


def _undo(args: Args) -> Request:
    return {"operation": "UNDO", **table_address(args), "request_id": args.request_id, **_options(args)}


def _question_before_undo(request: Request) -> str | None:
    if request.get("dry_run"):
        return None
    return f"What the request {request['request_id']} did to the table {full_name(request)} is taken back."


def _show_undone(response: Response, args: Args, printer: Printer) -> None:
    done = "would be undone" if response.get("dry_run") else "undone"
    removed, restored = plural(response["records_removed"], "row"), format_number(response["records_restored"])
    printer.line(f"{response['undone_operation']} {done}: {removed} removed, {restored} restored")
    show_backup(response, printer)


def _options(args: Args) -> Request:
    return {**({"create_backup": True} if args.keep else {}), **given_fields(args, "dry_run")}


def _show_replaced(done: bool, word: str, response: Response, printer: Printer) -> None:
    result = word if done else f"not {word}: {response['reason']}"
    before, after = plural(response["records_before"], "row"), format_number(response["records_after"])
    printer.line(f"{result}: {before} before, {after} after")
    show_backup(response, printer)


def _snapshot(text: str) -> int | str:
    number = parse_number(text)
    return text if number is None else number


def _show_backups(response: Response, args: Args, printer: Printer) -> None:
    columns = [PageColumn("BACKUP", whole=True), PageColumn("KEPT UNTIL", whole=True), PageColumn("ROWS", right=True)]
    printer.table(
        [*columns, PageColumn("SIZE", right=True), PageColumn("BEFORE")],
        [
            [
                b["name"],
                format_time(b["expires_at"]),
                format_number(b["records"]),
                format_size(b["bytes"]),
                b["operation"],
            ]
            for b in response["backups"]
        ],
    )
    printer.line(plural(len(response["backups"]), "backup"))


def _restore(args: Args) -> Request:
    return {"operation": "RESTORE_BACKUP", **table_address(args), "name": args.backup, **_options(args)}


def _question_before_restore(request: Request) -> str | None:
    if request.get("dry_run") or request.get("create_backup"):
        return None
    return (
        f"The table {full_name(request)} gets the rows of the backup; those that it has now are kept only with --keep."
    )


COMMANDS = (
    Command(
        "table history",
        "Show a table's snapshots: what each changed, and when.",
        (
            TABLE,
            argument("--limit", type=int, metavar="N", help="show at most this many; 100"),
            argument("--offset", type=int, metavar="N", help="skip this many of the latest"),
        ),
        examples.HISTORY,
        request=_history,
        show=_show_history,
        details="Rows marked + were added, - removed and ~ changed.",
    ),
    Command(
        "table diff",
        "Show which rows differ between two snapshots.",
        (
            TABLE,
            argument("from_snapshot", metavar="FROM", help="the state before: a snapshot's id, a tag or a time"),
            argument("to_snapshot", metavar="TO", nargs="?", help="the state after; the current state"),
            argument("--limit", type=int, default=100, metavar="N", help="show at most this many changes; 100"),
        ),
        examples.DIFF,
        request=_diff,
        show=_show_diff,
        needs_spark=True,
    ),
    Command(
        "table rollback",
        "Return a table to the rows of one of its snapshots.",
        (TABLE, argument("to", metavar="SNAPSHOT|TAG", help="the snapshot's id, or a tag"), _KEEP, _DRY_RUN),
        examples.ROLLBACK,
        request=_rollback,
        show=lambda response, args, printer: _show_replaced(response["rolled_back"], "rolled back", response, printer),
        question=_question_before_rollback,
        needs_spark=True,
    ),
    Command(
        "table undo",
        "Undo one earlier change, and keep what was written since.",
        (TABLE, argument("request_id", metavar="REQUEST", help="the request id of the change"), _KEEP, _DRY_RUN),
        examples.UNDO,
        request=_undo,
        show=_show_undone,
        question=_question_before_undo,
        needs_spark=True,
    ),
    Command(
        "backup list",
        "List the backups of a table.",
        (TABLE,),
        examples.BACKUPS,
        request=lambda args: {"operation": "LIST_BACKUPS", **table_address(args)},
        show=_show_backups,
    ),
    Command(
        "backup restore",
        "Replace the rows of a table by those of a backup.",
        (TABLE, _BACKUP, _KEEP, _DRY_RUN),
        examples.RESTORE,
        request=_restore,
        show=lambda response, args, printer: _show_replaced(response["restored"], "restored", response, printer),
        question=_question_before_restore,
        needs_spark=True,
    ),
    Command(
        "backup delete",
        "Delete a backup.",
        (TABLE, _BACKUP),
        examples.DELETE,
        request=lambda args: {"operation": "DELETE_BACKUP", **table_address(args), "name": args.backup},
        show=lambda response, args, printer: printer.line("deleted"),
        question=lambda request: f"The backup {request['name']} is deleted, and can be restored no more.",
    ),
)
