"""`firn table compact` and `firn table repartition`."""

from typing import Any

from service.cli.command import Args, Request, Response, UsageError, argument, flag, repeated
from service.cli.commands.tables import DRY_RUN, PARTITION_BY, table_command
from service.cli.files import table_address
from service.cli.terminal.format import format_number, format_size, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import name_beside, parse_assignments, split_list


def _show_compacted(response: Response, args: Args, printer: Printer) -> None:
    stats, plan = response["stats"], response.get("plan")
    if plan and plan["files"]:
        files = f"{plural(plan['files'], 'file')} of {format_size(plan['bytes'])}"
        after = f"the table would have {format_number(plan['expected_files_after'])}"
        printer.line(f"{files} would become {format_number(plan['expected_files'])}; {after}")
    elif not plan and response["compacted"]:
        files = f"{format_number(stats['files_before'])} files became {format_number(stats['files_after'])}"
        printer.line(f"{files} in {stats['compaction_time_ms']} ms")
    elif response["reason"]:
        # The reason names a field of the request. As an option, --force means something else.
        printer.line(f"nothing to merge: {response['reason'].replace('force: true', '--whole')}")
    else:
        printer.line("nothing to merge")


def _parse_derived(pairs: list[str]) -> dict[str, Any]:
    return {name: {"expression": text} for name, text in parse_assignments(pairs, "--derive").items()}


def _complete_repartition(request: Request, args: Args) -> Request:
    if "partition" not in request and "transform" not in request:
        raise UsageError(
            "no new partitioning is given; use --partition-by, --unpartitioned, --derive, or a file that has one"
        )
    return name_beside(request, "target_table")


def _show_repartitioned(response: Response, args: Args, printer: Printer) -> None:
    estimate, plan, stats = response.get("estimate"), response.get("plan"), response.get("stats")
    if estimate is not None:
        columns = (
            PageColumn(
                "PARTITION", name=True, value=lambda p: ", ".join(f"{k}={v}" for k, v in p["partition"].items())
            ),
            PageColumn("ROWS", right=True, value=lambda p: format_number(p["rows"])),
            PageColumn("ABOUT", right=True, value=lambda p: format_size(p["bytes"])),
        )
        printer.items(columns, estimate["partitions"])
        more = ", of which the largest are shown" if estimate["truncated"] else ""
        printer.line(f"{plural(estimate['partition_count'], 'partition')}{more}")
    elif plan is not None:
        files = f"{plural(plan['files'], 'file')} of {format_size(plan['bytes'])} with {plural(plan['rows'], 'row')}"
        printer.line(f"{files} would be rewritten into {plural(plan['partitions'], 'partition')}")
    elif response.get("repartitioned") and stats is not None:
        partitions = plural(stats["partitions_after"], "partition")
        files = plural(stats["files_after"], "file")
        printer.line(f"{plural(stats['records'], 'row')} are now in {partitions} and {files}")
        if response.get("backup"):
            printer.line(f"the old layout is kept as {response['backup']}")
    else:
        printer.line(f"nothing to do: {response['reason']}" if response["reason"] else "nothing to do")


COMMANDS = (
    table_command(
        "table compact",
        "Merge a table's small files.",
        argument("--strategy", None, "how to arrange the rows", choices=("binpack", "sort", "zorder")),
        argument("--sort-by", "COLUMNS", "the columns to sort by, separated by commas", parse=split_list),
        flag("--whole", "merge even if it is not worthwhile", "force"),
        DRY_RUN,
        operation="COMPACT",
        complete=lambda request, args: {"strategy": "sort", **request} if "sort_by" in request else request,
        job=True,
        show=_show_compacted,
    ),
    table_command(
        "table repartition",
        "Change a table's partitioning, and add columns computed from others.",
        flag("--unpartitioned", "remove the partitioning", "partition", {"partitions": []}),
        PARTITION_BY,
        repeated("--derive", "COLUMN=EXPRESSION", "a column computed from others", "transform", _parse_derived),
        flag("--keep-old", "keep the old layout as a backup", "delete_source", False),
        argument("--target-table", "NAME", "write a new table, and keep this one"),
        flag("--estimate", "only show which partitions there would be"),
        DRY_RUN,
        operation="REPARTITION",
        address=lambda args: table_address(args, "partition"),
        complete=_complete_repartition,
        job=True,
        show=_show_repartitioned,
    ),
)
