"""`firn table partitions`, `orphans` and `repartition`."""

from typing import Any

from service.cli.command import Args, Request, Response, UsageError, argument, flag, number, repeated
from service.cli.commands.tables import DRY_RUN, PARTITION_BY, PARTITION_FILTER, table_command
from service.cli.files import table_address
from service.cli.terminal.format import format_data, format_number, format_size, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import full_name, name_beside, parse_assignments

_PARTITION_COLUMNS = (
    PageColumn("PARTITION", name=True, value=lambda p: _format_partition(p["partition"])),
    PageColumn("ROWS", right=True, value=lambda p: format_number(p["records"])),
    PageColumn("FILES", right=True, value=lambda p: format_number(p["files"])),
    PageColumn("SMALL", right=True, value=lambda p: format_number(p["small_files"])),
    PageColumn("SIZE", right=True, value=lambda p: format_size(p["bytes"])),
)


def _format_partition(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={format_data(value)}" for name, value in values.items()) or "-"


def _show_partitions(response: Response, args: Args, printer: Printer) -> None:
    printer.items(_PARTITION_COLUMNS, response["partitions"])
    more = f" of {response['total']:,}; use --limit to see more" if response.get("next_cursor") else ""
    printer.line(f"{plural(len(response['partitions']), 'partition')}{more}")


def _show_orphans(response: Response, args: Args, printer: Printer) -> None:
    if plan := response.get("plan"):
        for path in plan["files"]:
            printer.line(path)
        files = plural(plan["files_removed"], "file")
        printer.line(f"{files} of {format_size(plan['bytes_removed'])} would be deleted")
        return
    found = f"{plural(response['files_found'], 'file')} of {format_size(response['bytes'])}"
    printer.line(f"{found} found, {response['files_removed']:,} deleted")


def _parse_derived(pairs: list[str]) -> dict[str, Any]:
    return {name: {"expression": text} for name, text in parse_assignments(pairs, "--derive").items()}


def _complete_repartition(request: Request, args: Args) -> Request:
    if not {"partition", "transform", "compression"} & request.keys():
        raise UsageError(
            "no new partitioning is given; use --partition-by, --unpartitioned, --derive, or a file that has one"
        )
    if args.keep_old and args.delete_source:
        raise UsageError("--keep-old and --delete-source contradict each other; leave one out")
    return name_beside(request, "target_table")


def _question_before_repartition(request: Request) -> str | None:
    if not request.get("delete_source") or request.get("estimate"):
        return None
    if "target_table" in request:
        return f"The table {full_name(request)} is deleted once {request['target_table']} has its rows."
    return f"The old layout of the table {full_name(request)} is deleted: its files and all older snapshots."


def _show_repartitioned(response: Response, args: Args, printer: Printer) -> None:
    estimate, plan, stats = response.get("estimate"), response.get("plan"), response.get("stats")
    if estimate is not None:
        columns = (
            PageColumn("PARTITION", name=True, value=lambda p: _format_partition(p["partition"])),
            PageColumn("ROWS", right=True, value=lambda p: format_number(p["records"])),
            PageColumn("ABOUT", right=True, value=lambda p: format_size(p["bytes"])),
        )
        printer.items(columns, estimate["partitions"])
        more = ", of which the largest are shown" if estimate["truncated"] else ""
        printer.line(f"{plural(estimate['partition_count'], 'partition')}{more}")
    elif plan is not None:
        files = f"{plural(plan['files_removed'], 'file')} of {format_size(plan['bytes_removed'])}"
        partitions = plural(plan["partitions_after"], "partition")
        printer.line(f"{files} with {plural(plan['records'], 'row')} would be rewritten into {partitions}")
    elif response.get("repartitioned") and stats is not None:
        partitions = plural(stats["partitions_after"], "partition")
        files = plural(stats["files_after"], "file")
        printer.line(f"{plural(stats['records'], 'row')} are now in {partitions} and {files}")
        if response.get("backup"):
            printer.line(f"the old layout is kept as {response['backup']}")
    else:
        printer.line(f"nothing to do: {response['reason']}" if response.get("reason") else "nothing to do")


COMMANDS = (
    table_command(
        "table partitions",
        "List a table's partitions, the most fragmented first.",
        PARTITION_FILTER,
        number("--limit", "show at most this many (default: all)"),
        operation="LIST_PARTITIONS",
        lists=("partitions",),
        show=_show_partitions,
    ),
    table_command(
        "table orphans",
        "Delete files in a table's folder that nothing refers to.",
        number("--older-than-hours", "only files that are this old (default: 72)"),
        DRY_RUN,
        operation="CLEAN_ORPHANS",
        question=lambda request: f"Files in the folder of {full_name(request)} that nothing refers to are deleted.",
        show=_show_orphans,
    ),
    table_command(
        "table repartition",
        "Change a table's partitioning, and add columns computed from others.",
        flag("--unpartitioned", "remove the partitioning", "partition", {"partitions": []}),
        PARTITION_BY,
        repeated("--derive", "COLUMN=EXPRESSION", "a column computed from others", "transform", _parse_derived),
        flag("--keep-old", "keep the old layout as a backup", "delete_source", False),
        flag(
            "--delete-source",
            "delete the old files and all older snapshots at once; with --target-table, the old table",
        ),
        number("--backup-retention-hours", "keep the backup for this long (default: the table's setting)"),
        argument("--target-table", "NAME", "write a new table, and keep this one"),
        argument("--compression", "CODEC", "the table's new codec: zstd, snappy, gzip or uncompressed"),
        number("--batch-size", "about how many rows to rewrite at a time; limits memory and disk space"),
        flag("--no-validate", "do not compare rows and checksum before the commit", "validate", False),
        flag("--estimate", "only show which partitions there would be"),
        DRY_RUN,
        operation="REPARTITION",
        address=lambda args: table_address(args, "partition"),
        complete=_complete_repartition,
        question=_question_before_repartition,
        job=True,
        show=_show_repartitioned,
    ),
)
