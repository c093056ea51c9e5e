"""`firn table status`, `export` and `apply`: how tables are, and what follows from a table file."""

from typing import Any

from service.cli.call import Invocation
from service.cli.command import UNCONFIRMED, Args, Command, Request, Response, UsageError, argument
from service.cli.commands.ingest import check_dates, figures, show_dates
from service.cli.commands.tables import DATASET_CONFIG, DRY_RUN, scope_options, table_command, table_name
from service.cli.files import table_address
from service.cli.table_files import config_fields, shown_path
from service.cli.terminal.cells import escape
from service.cli.terminal.format import format_number, format_size, format_time, format_value, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name

_SHOWN_FILES = 10


_STATUS_COLUMNS = (
    PageColumn("NAMESPACE", name=True, value=lambda table: table["namespace"]),
    PageColumn("TABLE", name=True, value=lambda table: table["table"]),
    PageColumn("FILES", right=True, value=lambda table: format_number(table["files"])),
    PageColumn("SMALL", right=True, value=lambda table: format_number(table["small_files"])),
    PageColumn("SIZE", right=True, value=lambda table: format_size(table["bytes"])),
    PageColumn("COMPACTION", value=lambda table: _compaction(table)),
)


def _show_tables(response: Response, printer: Printer) -> None:
    tables = sorted(response["recommendations"], key=lambda r: (r["namespace"], r["table"]))
    printer.items(_STATUS_COLUMNS, tables)
    files, small, recommended = (sum(t[key] for t in tables) for key in ("files", "small_files", "recommended"))
    counts = f"{plural(len(tables), 'table')}, {plural(files, 'file')}, {format_number(small)} small"
    size = format_size(sum(t["bytes"] for t in tables))
    printer.line(f"{counts}, {size}; {recommended} to compact")


def _compaction(table: dict[str, Any]) -> str:
    if not table["online"]:
        return "offline"
    if table["mode"] == "off":
        return "off"
    return "recommended" if table["recommended"] else "not needed"


def _complete_status(request: Request, args: Args) -> Request:
    if not args.table:
        return request
    return {"operation": "TABLE_STATUS", **table_address(args)}


def _show_status(response: Response, args: Args, printer: Printer) -> None:
    if args.table:
        _show_table(response, args, printer)
    else:
        _show_tables(response, printer)


_PERIOD_COLUMNS = (
    PageColumn("PERIOD", whole=True, value=lambda period: period["period"]),
    PageColumn("DAYS", right=True, value=lambda period: format_number(period["days"])),
    PageColumn("ROWS", right=True, value=lambda period: format_number(period["records"])),
    PageColumn("FILES", right=True, value=lambda period: format_number(period["files"])),
    PageColumn("SIZE", right=True, value=lambda period: format_size(period["bytes"])),
    PageColumn("COMPACTED", value=lambda period: period["compacted"]),
    PageColumn("MISSING", value=lambda period: show_dates(period.get("missing_dates") or []) or None),
)
_ERROR_COLUMNS = (
    PageColumn("DATE", whole=True, value=lambda error: error.get("date")),
    PageColumn("AT", whole=True, value=lambda error: format_time(error["refused_at"])),
    PageColumn("FILE", name=True, value=lambda error: error.get("source")),
    PageColumn("WHY", value=lambda error: error["message"]),
)


def _show_table(response: Response, args: Args, printer: Printer) -> None:
    missing = response.get("missing_dates") or []
    printer.pairs(
        {
            "table": table_name(args),
            "ingestions": format_number(response["ingestions"]),
            "dates": _range(response.get("first_date"), response.get("last_date")),
            "missing dates": f"{format_number(len(missing))}: {show_dates(missing)}" if missing else "none",
            "rows": format_number(response["records"]),
            "files": format_number(response["files"]),
            "size": format_size(response["bytes"]),
            "compactions": format_number(response["compactions"]),
            "compacted": _range(response.get("first_compacted_period"), response.get("last_compacted_period")),
            "ledger": response.get("ledger"),
        }
    )
    if response.get("periods"):
        printer.line()
        printer.items(_PERIOD_COLUMNS, response["periods"])
    if response.get("errors"):
        printer.line()
        printer.line("last errors:")
        printer.items(_ERROR_COLUMNS, response["errors"])


def _range(first: str | None, last: str | None) -> str:
    if first is None:
        return "-"
    return first if last in (None, first) else f"{first} to {last}"


def _complete_export(request: Request, args: Args) -> Request:
    chosen = [
        option
        for option, fields in (("--date", ("date",)), ("--from or --to", ("from", "to")), ("--period", ("period",)))
        if any(name in request for name in fields)
    ]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} exclude each other; use one")
    check_dates(request)
    return request


def _show_exported(response: Response, args: Args, printer: Printer) -> None:
    response = figures(response)
    files = response["files"]
    if args.dry_run:
        printer.line(f"{plural(len(files), 'file')} would be written")
    elif response["files_written"]:
        printer.success(f"Exported {plural(response['files_written'], 'file')}")
    else:
        printer.line("nothing to export")
    for file in files[:_SHOWN_FILES]:
        size = f": {plural(file['records'], 'row')}, {format_size(file['bytes'])}" if "records" in file else ""
        printer.line(f"  {shown_path(file['path'])}{size}")
    if len(files) > _SHOWN_FILES:
        printer.line(f"  and {plural(len(files) - _SHOWN_FILES, 'more file')}")
    if response.get("files_current"):
        printer.line(f"  {plural(response['files_current'], 'file')} up to date")


def _apply(call: Invocation) -> int:
    """Show how the table would change, ask, and change it."""
    request = call.request() | config_fields(call.args, call.url)
    request.pop("dry_run", None)
    with call.connect() as connection:
        planned = connection.send({**request, "dry_run": True})
        if not planned["success"] or call.args.dry_run or not planned["plan"]["changes"]:
            return call.show(planned)
        if not call.args.yes:
            for line in change_lines(planned["plan"]["changes"]):
                print(escape(line), file=call.stderr)
            if not call.confirms(f"The table {full_name(request)} is changed in this way."):
                return UNCONFIRMED
        response = connection.send(request)
    return call.show(response)


def change_lines(changes: list[dict[str, Any]]) -> list[str]:
    """A line for each change: the key, its values before and after, and what follows from it.

    Of a list, only the entries that change are shown, each on a line of its own.
    """
    lines = []
    for change in changes:
        before, after = change.get("from"), change.get("to")
        sign = "+" if before is None else "-" if after is None else "~"
        values = " -> ".join(_shown(value) for value in (before, after) if value is not None)
        effect = f"  ({change['effect']})" if change.get("effect") else ""
        if isinstance(before, list) and isinstance(after, list):
            lines.append(f"  {sign} {change['path']}{effect}")
            lines += [f"      - {_shown(entry)}" for entry in before if entry not in after]
            lines += [f"      + {_shown(entry)}" for entry in after if entry not in before]
        else:
            lines.append(f"  {sign} {change['path']}: {values}{effect}")
    return lines


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else format_value(value)


def _show_applied(response: Response, args: Args, printer: Printer) -> None:
    changes = figures(response).get("changes") or []
    if not changes:
        printer.line(f"{table_name(args)} is as {args.table} says; nothing to change")
        return
    if response.get("applied"):
        printer.success(f"Applied {plural(len(changes), 'change')} to {table_name(args)}")
    else:
        printer.line(f"{plural(len(changes), 'change')} to {table_name(args)} would be applied")
    for line in change_lines(changes):
        printer.line(line)


COMMANDS = (
    Command(
        "table status",
        "Show the small files of a namespace's tables, or the ingestions of one.",
        (
            argument("table", "TABLE|FILE", "a table that takes a file a day, or its table file", None, nargs="?"),
            *scope_options("the tables"),
        ),
        operation="RECOMMEND",
        complete=_complete_status,
        lists=("recommendations",),
        show=_show_status,
    ),
    table_command(
        "table export",
        "Write the files of dates and periods for readers without Iceberg.",
        argument("--date", "DATE", "only the file of this date"),
        argument("--from", "DATE", "only the files from this date on", "from", dest="first"),
        argument("--to", "DATE", "only the files up to this date", "to", dest="last"),
        argument("--period", "PERIOD", "only the file of this month or week, such as 2024-01 or 2024-W05"),
        DRY_RUN,
        operation="EXPORT",
        complete=_complete_export,
        job=True,
        cancels=True,
        show=_show_exported,
        details="Without options it writes what is missing or out of date. The table file says where: storage.",
    ),
    table_command(
        "table apply",
        "Change a table to what its table file and dataset file say now.",
        DATASET_CONFIG,
        DRY_RUN,
        operation="APPLY_TABLE",
        run=_apply,
        show=_show_applied,
        details="It shows the changes and asks. If one cannot be applied, it says why, and nothing is applied.",
    ),
)
