"""`firn write`, `upsert`, `update` and `delete`: change the rows of a table."""

from typing import Any

from service.cli.call import Invocation, send_request
from service.cli.command import (
    Args,
    Command,
    Request,
    Response,
    UsageError,
    argument,
    flag,
    repeated,
)
from service.cli.commands.tables import BACKUP, DRY_RUN, TABLE, filter_option, show_backup
from service.cli.connection.remote import encode
from service.cli.files import parse_json, parse_value, read_input, table_address
from service.cli.terminal.format import format_data, plural
from service.cli.terminal.printer import PageColumn, Printer, data_columns
from service.cli.values import full_name, parse_assignments, split_list

_RECORDS = argument("records", "FILE|-", "the rows as a JSON array, or a JSON object on each line; - for stdin", None)
_WHERE = filter_option("--where", "which rows: an expression such as 'amount > 10', or JSON", "filter")
_ALL = flag("--all", "every row")
_OPTIONS = (
    filter_option("--partition-filter", "only rows of these partitions"),
    *BACKUP,
    DRY_RUN,
    argument("--plan", "TOKEN", "commit exactly what a dry run showed, or nothing", "plan_token"),
)
_COUNTS = ("inserted", "updated", "unchanged", "replaced", "deleted", "written")


def _read_records(call: Invocation) -> str:
    """The records as the text of a JSON array, in which numbers are as they were written."""
    text, where = read_input(call.args.records, call.stdin)
    if text.lstrip().startswith("["):
        parse_json(text, where)
        return text
    # JSON may have other line breaks inside its texts.
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{where} has no records; write [] if there are none")
    for i, line in lines:
        if not isinstance(parse_json(line, f"{where}, line {i}"), dict):
            raise UsageError(f"{where}, line {i} is not a JSON object; write one on each line, or one JSON array")
    return f"[{','.join(line for _, line in lines)}]"


def _send_records(call: Invocation) -> int:
    _check_guards(call.args)
    records = _read_records(call).encode()
    return send_request(call, lambda request: b'%s, "records": %s}' % (encode(request)[:-1], records))


def _question_before_overwrite(request: Request) -> str | None:
    if request.get("mode") != "overwrite" or {"plan_token", "create_backup"} & request.keys():
        return None
    which = "The rows of --partition-filter in" if "partition_filter" in request else "All rows of"
    return f"{which} the table {full_name(request)} are replaced."


def _parse_values(pairs: list[str]) -> dict[str, Any]:
    return {name: parse_value(text, f"--set {name}") for name, text in parse_assignments(pairs, "--set").items()}


def _complete_update(request: Request, args: Args) -> Request:
    computed = parse_assignments(args.compute or [], "--compute")
    updates = {**request.get("updates", {}), **{name: {"expression": text} for name, text in computed.items()}}
    if not updates:
        raise UsageError("no new value is given; use --set COLUMN=VALUE or --compute COLUMN=EXPRESSION")
    if twice := computed.keys() & request.get("updates", {}).keys():
        raise UsageError(f"{min(twice)} has both --set and --compute; leave one out")
    return _complete_rows({**request, "updates": updates}, args)


def _check_guards(args: Args) -> None:
    """Refuse an empty value where leaving the option out means more rows, or no check: a variable may be unset."""
    for option in ("plan", "partition_filter"):
        if getattr(args, option) == "":
            raise UsageError(f"--{option.replace('_', '-')} is empty; give a value, or leave it out")


def _complete_rows(request: Request, args: Args) -> Request:
    _check_guards(args)
    if ("filter" in request) == ("all" in request):
        raise UsageError("say which rows: --where FILTER, or --all for every row")
    return request


def _show(response: Response, args: Args, printer: Printer) -> None:
    plan = response.get("plan")
    show_rows([(each.get("before"), each.get("after")) for each in (plan or {}).get("sample", ())], printer)
    printer.line(counted(plan or response, "would be " if plan else ""))
    show_backup(response, printer)
    if plan:
        printer.text(f"commit exactly this with --plan {plan['plan_token']}")


def counted(counts: Response, would: str = "") -> str:
    """What happened to rows, or would happen, in words."""
    found = {word: counts.get(f"records_{word}") for word in _COUNTS}
    if found["inserted"] is not None:
        found.pop("written")  # the rows that were inserted
    shown = [(count, word) for word, count in found.items() if count is not None]
    (first, word), *more = [each for each in shown if each[0]] or shown[:1]
    return f"{plural(first, 'row')} {would}{word}" + "".join(f", {count:,} {word}" for count, word in more)


def show_rows(changes: list[tuple[Any, Any]], printer: Printer) -> None:
    """Show each row before and after a change; one of them is None if it was inserted or deleted."""
    rows = [(sign, row) for change in changes for sign, row in zip("-+", change, strict=True) if row is not None]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    if names:
        printer.table(
            [PageColumn(" "), *data_columns(names, [row for _, row in rows])],
            [[sign, *(format_data(row.get(name)) for name in names)] for sign, row in rows],
        )


def _edit(name: str, summary: str, *arguments: Any, **more: Any) -> Command:
    return Command(
        name,
        summary,
        (TABLE, *arguments, *_OPTIONS),
        **{"operation": name.upper(), "address": table_address, "show": _show, **more},
    )


COMMANDS = (
    _edit(
        "write",
        "Add rows to a table, or replace its rows.",
        _RECORDS,
        flag("--overwrite", "replace all rows, or those of --partition-filter", "mode", "overwrite"),
        run=_send_records,
        question=_question_before_overwrite,
        details="--dry-run, --plan, --backup and --partition-filter need --overwrite. `firn load` takes larger files.",
    ),
    _edit(
        "upsert",
        "Update the rows that have the same key, and insert the others.",
        _RECORDS,
        argument(
            "--key", "COLUMNS", "the columns that identify a row (default: the primary key)", "key_cols", split_list
        ),
        argument(
            "--update-columns", "COLUMNS", "only these may change (default: all others)", "update_cols", split_list
        ),
        flag("--last-wins", "of records with the same key, use the last", "on_duplicate", "last"),
        flag("--replace", "of several rows of the table with one key, keep only the newest", "on_multiple", "replace"),
        run=_send_records,
    ),
    _edit(
        "update",
        "Set columns to new values in the rows that match a filter.",
        repeated("--set", "COLUMN=VALUE", "set a column to a value", "updates", _parse_values),
        repeated("--compute", "COLUMN=EXPRESSION", "set a column to a value computed from the row", None),
        _WHERE,
        _ALL,
        complete=_complete_update,
    ),
    _edit(
        "delete",
        "Delete the rows that match a filter.",
        _WHERE,
        _ALL,
        complete=_complete_rows,
        question=lambda request: (
            f"All rows of the table {full_name(request)} are deleted."
            if "all" in request and "plan_token" not in request
            else None
        ),
    ),
)
