"""`firn table compact` and `repartition`: other files, another layout."""

from service.cli.command import Answer, Args, Command, Misused, Request, argument, flag, repeated
from service.cli.examples import layouts as examples
from service.cli.files import address, table_of
from service.cli.page import Column, Page, count, number, size
from service.cli.tables import PARTITION_BY, TABLE
from service.cli.values import assignments, listed, partition_of


def _compact(args: Args) -> Request:
    request: Request = {"operation": "COMPACT", **address(args)}
    if args.sort_by:
        request |= {"strategy": args.strategy or "sort", "sort_by": listed(args.sort_by)}
    elif args.strategy:
        request["strategy"] = args.strategy
    for name in ("whole", "dry_run"):
        if getattr(args, name):
            request["force" if name == "whole" else name] = True
    return request


def _compacted(answer: Answer, args: Args, page: Page) -> None:
    stats, plan = answer["stats"], answer.get("plan")
    if plan is not None:
        told = f"{count(plan['files'], 'file')} of {size(plan['bytes'])} would become {number(plan['expected_files'])}"
        page.line(
            f"{told}; the table would have {number(plan['expected_files_after'])}" if plan["files"] else _no(answer)
        )
    elif answer["compacted"]:
        saved = f"{number(stats['files_before'])} files became {number(stats['files_after'])}"
        page.line(f"{saved} in {stats['compaction_time_ms']} ms")
    else:
        page.line(_no(answer))


def _no(answer: Answer) -> str:
    if not answer["reason"]:
        return "nothing to merge"
    # The service names the request's field. Here --force asks no question, and is another thing.
    return f"nothing to merge: {answer['reason'].replace('force: true', '--whole')}"


def _repartition(args: Args) -> Request:
    table = table_of(args)
    request: Request = {"operation": "REPARTITION", **address(args)}
    if args.partition_by:
        request["partition"] = partition_of(args.partition_by)
    elif args.unpartitioned:
        request["partition"] = {"partitions": []}
    elif "partition" in table:
        request["partition"] = table["partition"]
    if args.derive:
        derived = assignments(args.derive, "--derive")
        request["transform"] = {name: {"expression": expression} for name, expression in derived.items()}
    if "partition" not in request and "transform" not in request:
        raise Misused(
            "the new partitioning is not said; give --partition-by, --unpartitioned, --derive or a file with it"
        )
    if args.keep_old:
        request["delete_source"] = False
    if args.target_table:
        request["target_table"] = args.target_table
    for name in ("estimate", "dry_run"):
        if getattr(args, name):
            request[name] = True
    return request


def _repartitioned(answer: Answer, args: Args, page: Page) -> None:
    estimate, plan, stats = answer.get("estimate"), answer.get("plan"), answer.get("stats")
    if estimate is not None:
        rows = [
            [", ".join(f"{k}={v}" for k, v in p["partition"].items()), number(p["rows"]), size(p["bytes"])]
            for p in estimate["partitions"]
        ]
        page.table([Column("PARTITION", name=True), Column("ROWS", right=True), Column("ABOUT", right=True)], rows)
        more = ", of which the largest are shown" if estimate["truncated"] else ""
        page.line(f"{count(estimate['partition_count'], 'partition')}{more}")
    elif plan is not None:
        made = f"{count(plan['files'], 'file')} of {size(plan['bytes'])} with {count(plan['rows'], 'row')}"
        page.line(f"{made} would be rewritten into {count(plan['partitions'], 'partition')}")
    elif answer.get("repartitioned") and stats is not None:
        made = f"{count(stats['records'], 'row')} now lie in {count(stats['partitions_after'], 'partition')}"
        page.line(f"{made} and {count(stats['files_after'], 'file')}")
        if answer.get("backup"):
            page.line(f"the old layout is kept as {answer['backup']}")
    else:
        page.line(f"nothing to do: {answer['reason']}" if answer["reason"] else "nothing to do")


COMMANDS = (
    Command(
        "table compact",
        "Merge a table's small files.",
        (
            TABLE,
            argument("--strategy", choices=("binpack", "sort", "zorder"), help="how rows are arranged"),
            argument("--sort-by", metavar="COLUMNS", help="the columns to sort by, with commas"),
            flag("--whole", "merge also where it is not worth it"),
            flag("--dry-run", "only say what would be done"),
        ),
        examples.COMPACT,
        request=_compact,
        show=_compacted,
        spark=True,
        job=True,
    ),
    Command(
        "table repartition",
        "Give a table another partitioning, and columns derived from others.",
        (
            TABLE,
            PARTITION_BY,
            flag("--unpartitioned", "without partitions"),
            repeated("--derive", "COLUMN=EXPRESSION", "a new column, worked out from others"),
            flag("--keep-old", "keep the old layout as a backup"),
            argument("--target-table", metavar="NAME", help="make a new table of it, and leave this one as it is"),
            flag("--estimate", "only say which partitions there would be"),
            flag("--dry-run", "only say what would be rewritten"),
        ),
        examples.REPARTITION,
        request=_repartition,
        show=_repartitioned,
        spark=True,
        job=True,
    ),
)
