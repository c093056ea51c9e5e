"""`firn table history`, `diff`, `rollback` and `undo`, and `firn backup …`."""

from typing import Any

from service.cli.call import failure
from service.cli.command import Args, Request, Response, argument, number
from service.cli.commands.edits import show_rows
from service.cli.commands.tables import BACKUP, DRY_RUN, STATE, show_backup, show_items, table_command
from service.cli.connection.remote import Connection
from service.cli.terminal.cells import escape
from service.cli.terminal.format import format_number, format_size, format_time, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import address_of, full_name

_NAME = argument("backup", "BACKUP", "the backup's name, as `firn backup list` shows it", "name")
_KINDS = ("inserted", "deleted", "updated")
_HISTORY_COLUMNS = (
    PageColumn("SNAPSHOT", right=True, value=lambda snapshot: snapshot["snapshot_id"]),
    PageColumn("TIME", whole=True, value=lambda snapshot: format_time(snapshot["committed_at"])),
    PageColumn("OPERATION", value=lambda snapshot: snapshot["operation"]),
    PageColumn(
        "ROWS",
        right=True,
        value=lambda s: _counts(s, {"+": "records_added", "-": "records_removed", "~": "records_updated"}),
    ),
    PageColumn("FILES", right=True, value=lambda s: _counts(s, {"+": "files_added", "-": "files_removed"})),
)
_REQUEST = PageColumn("REQUEST", whole=True)
_BACKUP_COLUMNS = (
    PageColumn("BACKUP", whole=True, value=lambda backup: backup["name"]),
    PageColumn("KEPT UNTIL", whole=True, value=lambda backup: format_time(backup.get("expires_at"))),
    PageColumn("ROWS", right=True, value=lambda backup: format_number(backup["records"])),
    PageColumn("SIZE", right=True, value=lambda backup: format_size(backup["bytes"])),
    PageColumn("BEFORE", value=lambda backup: backup["operation"]),
)


def _counts(snapshot: dict[str, Any], fields: dict[str, str]) -> str:
    """The counts of a snapshot that are not zero, each with its sign."""
    counts = (f"{sign}{format_number(snapshot[field])}" for sign, field in fields.items() if snapshot[field])
    return " ".join(counts) or "-"


def _show_history(response: Response, args: Args, printer: Printer) -> None:
    """Show every request id, because UNDO needs it: in a column, or below its snapshot if there is no room for one."""
    columns, rows = (*_HISTORY_COLUMNS, _REQUEST), []
    for snapshot in response["snapshots"]:
        first, *more = snapshot["request_ids"] or [None]
        rows.append([*(column.value(snapshot) for column in _HISTORY_COLUMNS), first])
        rows += [[*[""] * len(_HISTORY_COLUMNS), each] for each in more]
    if printer.has_room(columns, rows):
        printer.table(columns, rows)
    else:
        printer.items(_HISTORY_COLUMNS, response["snapshots"])
        end = len(printer.lines)
        for i, snapshot in reversed(list(enumerate(response["snapshots"], end - len(response["snapshots"])))):
            printer.lines[i + 1 : i + 1] = [f"  request {each}" for each in map(escape, snapshot["request_ids"])]
    shown, total = len(response["snapshots"]), plural(response["total"], "snapshot")
    more = "; there are older ones, use --limit to see more" if response.get("next_cursor") else ""
    printer.line(total if shown == response["total"] else f"{format_number(shown)} of {total}{more}")


def _show_diff(response: Response, args: Args, printer: Printer) -> None:
    show_rows([(change.get("before"), change.get("after")) for change in response["changes"]], printer)
    counts = [response[f"records_{kind}"] for kind in _KINDS]
    total = ", ".join(f"{format_number(count)} {kind}" for count, kind in zip(counts, _KINDS, strict=True))
    more = "; there are more, use --limit to see them" if len(response["changes"]) < sum(counts) and args.limit else ""
    printer.line(f"{total}{more}")


def _question_before_rollback(request: Request) -> str:
    return f"The table {full_name(request)} returns to the rows of {request['as_of']}; later changes no longer apply."


def _show_undone(response: Response, args: Args, printer: Printer) -> None:
    plan = response.get("plan")
    done, figures = ("would be undone", plan) if plan else ("undone", response)
    removed, restored = plural(figures["records_removed"], "row"), format_number(figures["records_restored"])
    printer.line(f"{figures['undone_operation']} {done}: {removed} removed, {restored} restored")
    show_backup(response, printer)


def _show_replaced(word: str, response: Response, printer: Printer) -> None:
    figures = response.get("plan", response)
    done = f"would be {word}" if "plan" in response else word
    result = f"not {word}: {figures['reason']}" if "reason" in figures else done
    before, after = plural(figures["records_before"], "row"), format_number(figures["records_after"])
    printer.line(f"{result}: {before} before, {after} after")
    show_backup(response, printer)


def _check_delete(request: Request, connection: Connection) -> Response | None:
    """The response to deleting a backup that does not exist."""
    response = connection.send({"operation": "LIST_BACKUPS", **address_of(request)})
    if not response["success"]:
        return response
    # A backup that is not on the first page may exist.
    if response.get("next_cursor") or request["name"] in {backup["name"] for backup in response["backups"]}:
        return None
    advice = f"`firn backup list {full_name(request)}` lists them"
    return failure("BACKUP_NOT_FOUND", f"{full_name(request)} has no backup {request['name']}; {advice}")


COMMANDS = (
    table_command(
        "table history",
        "Show a table's snapshots: what each changed, and when.",
        number("--limit", "show at most this many (default: all)"),
        operation="HISTORY",
        lists=("snapshots",),
        show=_show_history,
        details="Rows marked + were added, - removed and ~ changed.",
    ),
    table_command(
        "table diff",
        "Show which rows differ between two snapshots.",
        argument("from_snapshot", "FROM", f"the state before: {STATE}"),
        argument("to_snapshot", "TO", "the state after (default: the current state)", nargs="?"),
        number("--limit", "show at most this many changes (default: 100)", default=100),
        operation="DIFF",
        lists=("changes",),
        job=True,
        cancels=True,
        show=_show_diff,
    ),
    table_command(
        "table rollback",
        "Return a table to the rows of one of its snapshots.",
        argument("--as-of", "STATE", f"the state to return to: {STATE}", required=True),
        *BACKUP,
        DRY_RUN,
        operation="ROLLBACK",
        question=_question_before_rollback,
        show=lambda response, args, printer: _show_replaced("rolled back", response, printer),
    ),
    table_command(
        "table undo",
        "Undo one earlier change, and keep what was written since.",
        argument("request_id", "REQUEST", "the request id of the change, as `firn table history` shows it"),
        argument("--snapshot", "SNAPSHOT", "the snapshot of the change, if several have the request id", "snapshot_id"),
        *BACKUP,
        DRY_RUN,
        operation="UNDO",
        job=True,
        long_preview=True,
        question=lambda request: (
            f"The changes that request {request['request_id']} made to the table {full_name(request)} are undone."
        ),
        show=_show_undone,
    ),
    table_command(
        "backup list",
        "List the backups of a table.",
        operation="LIST_BACKUPS",
        lists=("backups",),
        show=show_items("backup", _BACKUP_COLUMNS),
    ),
    table_command(
        "backup restore",
        "Replace the rows of a table by those of a backup, or of another earlier state.",
        argument("backup", "BACKUP", "the backup's name, as `firn backup list` shows it", "name", nargs="?"),
        argument("--as-of", "STATE", f"instead of a backup's name: {STATE}"),
        *BACKUP,
        DRY_RUN,
        operation="RESTORE_BACKUP",
        question=lambda request: (
            f"The rows of the table {full_name(request)} are replaced by those of the backup; --backup would keep them."
            if "create_backup" not in request
            else None
        ),
        show=lambda response, args, printer: _show_replaced("restored", response, printer),
    ),
    table_command(
        "backup delete",
        "Delete a backup.",
        _NAME,
        operation="DELETE_BACKUP",
        check=_check_delete,
        question=lambda request: f"The backup {request['name']} is deleted for good.",
        show=lambda response, args, printer: printer.line("deleted"),
    ),
)
