"""`firn table compact` and `firn table repartition`."""

from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag, repeated
from service.cli.commands.tables import PARTITION_BY, TABLE
from service.cli.examples import layouts as examples
from service.cli.files import table_address, table_argument
from service.cli.terminal.format import format_number, format_size, plural
from service.cli.terminal.printer import PageColumn, Printer
from service.cli.values import given_fields, parse_assignments, parse_partition, split_list


def _compact(args: Args) -> Request:
    request: Request = {"operation": "COMPACT", **table_address(args), **given_fields(args, "strategy", "dry_run")}
    if args.sort_by:
        request |= {"strategy": args.strategy or "sort", "sort_by": split_list(args.sort_by)}
    if args.whole:
        request["force"] = True
    return request


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


def _repartition(args: Args) -> Request:
    table = table_argument(args)
    request: Request = {"operation": "REPARTITION", **table_address(args)}
    if args.partition_by:
        request["partition"] = parse_partition(args.partition_by)
    elif args.unpartitioned:
        request["partition"] = {"partitions": []}
    elif "partition" in table:
        request["partition"] = table["partition"]
    if args.derive:
        derived = parse_assignments(args.derive, "--derive")
        request["transform"] = {name: {"expression": expression} for name, expression in derived.items()}
    if "partition" not in request and "transform" not in request:
        raise UsageError(
            "no new partitioning is given; use --partition-by, --unpartitioned, --derive or a file with it"
        )
    if args.keep_old:
        request["delete_source"] = False
    return {**request, **given_fields(args, "target_table", "estimate", "dry_run")}


def _show_repartitioned(response: Response, args: Args, printer: Printer) -> None:
    estimate, plan, stats = response.get("estimate"), response.get("plan"), response.get("stats")
    if estimate is not None:
        columns = [PageColumn("PARTITION", name=True), PageColumn("ROWS", right=True), PageColumn("ABOUT", right=True)]
        rows = [
            [
                ", ".join(f"{k}={v}" for k, v in p["partition"].items()),
                format_number(p["rows"]),
                format_size(p["bytes"]),
            ]
            for p in estimate["partitions"]
        ]
        printer.table(columns, rows)
        more = ", of which the largest are shown" if estimate["truncated"] else ""
        printer.line(f"{plural(estimate['partition_count'], 'partition')}{more}")
    elif plan is not None:
        files = f"{plural(plan['files'], 'file')} of {format_size(plan['bytes'])} with {plural(plan['rows'], 'row')}"
        printer.line(f"{files} would be rewritten into {plural(plan['partitions'], 'partition')}")
    elif response.get("repartitioned") and stats is not None:
        partitions = plural(stats["partitions_after"], "partition")
        files = plural(stats["files_after"], "file")
        printer.line(f"{plural(stats['records'], 'row')} now lie in {partitions} and {files}")
        if response.get("backup"):
            printer.line(f"the old layout is kept as {response['backup']}")
    else:
        printer.line(f"nothing to do: {response['reason']}" if response["reason"] else "nothing to do")


COMMANDS = (
    Command(
        "table compact",
        "Merge a table's small files.",
        (
            TABLE,
            argument("--strategy", choices=("binpack", "sort", "zorder"), help="how to arrange the rows"),
            argument("--sort-by", metavar="COLUMNS", help="the columns to sort by, with commas"),
            flag("--whole", "merge even if it is not worthwhile"),
            flag("--dry-run", "only show what would be done"),
        ),
        examples.COMPACT,
        request=_compact,
        show=_show_compacted,
        needs_spark=True,
        job=True,
    ),
    Command(
        "table repartition",
        "Change a table's partitioning, and add columns computed from others.",
        (
            TABLE,
            PARTITION_BY,
            flag("--unpartitioned", "remove the partitioning"),
            repeated("--derive", "COLUMN=EXPRESSION", "a new column, computed from others"),
            flag("--keep-old", "keep the old layout as a backup"),
            argument("--target-table", metavar="NAME", help="write a new table, and leave this one as it is"),
            flag("--estimate", "only show which partitions there would be"),
            flag("--dry-run", "only show what would be rewritten"),
        ),
        examples.REPARTITION,
        request=_repartition,
        show=_show_repartitioned,
        needs_spark=True,
        job=True,
    ),
)
