"""`firn compact` and `firn table compact`, which are one command: one table, or all that need it, also from cron."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from service.cli.call import Invocation, send_request
from service.cli.command import (
    FAILED,
    OK,
    UNREACHABLE,
    Args,
    Command,
    Request,
    Response,
    UsageError,
    argument,
    flag,
    number,
    repeated,
)
from service.cli.commands.ingest import show_dates
from service.cli.commands.tables import PARTITION_FILTER, table_name
from service.cli.connection.jobs import run_as_job
from service.cli.connection.lists import whole_list
from service.cli.connection.remote import LONG_PAUSES_S, Connection, Unreachable
from service.cli.files import is_file, read_table, table_address
from service.cli.table_files import shown_path
from service.cli.terminal.cells import escape
from service.cli.terminal.format import format_number, format_size, plural
from service.cli.terminal.printer import Printer
from service.cli.values import full_name, named_table, split_list


def _compact(call: Invocation) -> int:
    args = call.args
    if args.table and args.only:
        args.error("two tables are given; leave --table out")
    if not args.all_recommended and not args.table and not args.only:
        args.error("no table is given; use --table for one, or --all-recommended for all that need it")
    given: list[str] = args.tenant or [args.default_tenant]
    tenants = list(dict.fromkeys(split_list(",".join(given)))) or ["default"]
    if args.table and not args.all_recommended and len(tenants) == 1:
        args.tenant = tenants[0] if args.tenant else None
        return send_request(call)
    with call.connect(pauses_s=LONG_PAUSES_S) as connection:
        return _Compaction(connection, call, tenants).run()


def _complete(request: Request, args: Args) -> Request:
    if "period" not in request and (given := {"allow_incomplete", "delete_source"} & request.keys()):
        raise UsageError(f"--{min(given).replace('_', '-')} needs --period; say which month or week")
    return {"strategy": "sort", **request} if "sort_by" in request else request


def _named(args: Args) -> Request:
    """The name of the table, if one is given, and its namespace, if that is."""
    if args.table and is_file(args.table):
        table = read_table(args.table)
        namespace = args.namespace or table.get("namespace")
        return {"table": table["table"], **({"namespace": namespace} if namespace else {})}
    name = args.table or args.only
    return named_table(name, args) if name else {}


@dataclass
class _Compaction:
    """Compacts tables one after the other, and prints a line for each. A failure does not stop the others."""

    connection: Connection
    call: Invocation
    tenants: list[str]
    failures: int = 0
    printed: bool = False
    """Whether an object was printed: CSV has its heading once."""
    responded: bool = False
    """Whether the service ever did."""

    def run(self) -> int:
        """Compact the tables that the arguments choose, and return the exit code."""
        tables = 0
        for tenant in self.tenants:
            for address, advice in self._choose_tables(tenant):
                tables += 1
                if self.call.args.dry_run:
                    reason = advice.get("reason")
                    self._print_outcome(address, {"why": reason}, f"would be compacted{_because(reason)}")
                else:
                    self._compact(address, advice.get("files_after"))
        if self.failures:
            return FAILED if self.responded else UNREACHABLE
        if not tables and self.call.output == "table":
            self._print("no table is worth compacting")
        return OK

    def _choose_tables(self, tenant: str) -> Iterator[tuple[Request, dict[str, Any]]]:
        """The addresses of the tables to compact, and what RECOMMEND says about each."""
        args, table = self.call.args, _named(self.call.args)
        if not args.all_recommended:
            yield {"tenant_id": tenant, "namespace": "default", **table}, {}
            return
        namespace = table.get("namespace") or args.namespace
        which = {"namespace": namespace} if namespace else {"scope": "tenant"}
        response = self._send({"operation": "RECOMMEND", "tenant_id": tenant, **which})
        if not response["success"]:
            self.failures += 1
            if response["error"]["code"] != "UNREACHABLE":
                self.call.notify(f"the recommendations for {tenant}: {_describe(response['error'])}")
            return
        for each in response["recommendations"]:
            if each["recommended"] and table.get("table") in (None, each["table"]):
                yield {"tenant_id": tenant, "namespace": each["namespace"], "table": each["table"]}, each

    def _compact(self, address: Request, promised: int | None) -> None:
        """Compact one table and print the outcome.

        One compaction merges a limited number of files. If a number of files is `promised`, go on until it is reached
        or there is nothing more to merge.
        """
        request = _complete({"operation": "COMPACT", **address, **self._options()}, self.call.args)
        response = self._send(request, f"compact {full_name(address)}")
        while response["success"] and promised is not None and response["stats"]["files_after"] > promised:
            more = self._send(request, f"compact {full_name(address)}")
            if not more["success"]:
                response = more
                break
            stalled = more["stats"]["files_after"] >= response["stats"]["files_after"]  # others write as fast
            if more["compacted"]:
                response = {**more, "stats": _together(response["stats"], more["stats"])}
            if stalled or not more["compacted"]:
                break
        if not response["success"]:
            self.failures += 1
            error = {key: response["error"][key] for key in ("code", "message")}
            self._print_outcome(address, {"success": False, "error": error}, f"FAILED: {_describe(error)}")
            return
        stats = response["stats"]
        if response["compacted"]:
            files = f"{stats['files_before']} files became {stats['files_after']}"
            line = f"{files} in {stats['compaction_time_ms']} ms"
        else:
            line = f"nothing to merge{_because(_as_option(response.get('reason', '')))}"
        shown = ("success", "compacted", "reason", "stats")
        outcome = {key: value for key, value in response.items() if key in shown}
        self._print_outcome(address, outcome, line)

    def _options(self) -> Request:
        """The fields of COMPACT that options set."""
        fields: Request = {}
        for each in _OPTIONS:
            fields |= each.fields(self.call.args)
        return fields

    def _send(self, request: Request, job: str | None = None) -> Response:
        """Send a request, as a `job` of this name if it has one. A service that does not respond is an error, too."""
        try:
            if job is None:
                response = whole_list(self.connection.send, request, ("recommendations",))
            else:
                with self.call.progress(job) as on_progress:
                    response = run_as_job(self.connection, request, on_progress)
        except Unreachable as e:
            self.call.notify(str(e))
            return {"success": False, "error": {"code": "UNREACHABLE", "message": str(e)}}
        self.responded = True
        return response

    def _print_outcome(self, address: Request, outcome: dict[str, Any], line: str) -> None:
        if self.call.output != "table":
            self.call.print_data({**address, **outcome}, heading=not self.printed)
            self.printed = True
        else:
            tenant = f"{address['tenant_id']}." if len(self.tenants) > 1 else ""
            self._print(f"{tenant}{full_name(address)}: {line}")

    def _print(self, line: str) -> None:
        # At once, so that a reader sees each table as it is done.
        print(escape(line), file=self.call.stdout, flush=True)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _as_option(reason: str) -> str:
    """A reason that names a field of the request, with the option instead."""
    return reason.replace("force: true", "--force")


def _together(first: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The figures of two compactions of a table, one after the other, as if they were one."""
    added = {
        name: first[name] + value
        for name, value in then.items()
        if name in first and not name.endswith(("_after", "_before", "_remaining", "_kept"))
    }
    before = {name: value for name, value in first.items() if name.endswith("_before")}
    return {**then, **added, **before}


def _describe(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']}"


def _show_compacted(response: Response, args: Args, printer: Printer) -> None:
    plan = response.get("plan")
    reason = (plan or response).get("reason")
    found = plan or response
    if found.get("periods") or found.get("periods_skipped"):
        _show_periods(found, args, printer)
    elif plan and plan["files_removed"]:
        files = f"{plural(plan['files_removed'], 'file')} of {format_size(plan['bytes_removed'])}"
        after = f"the table would have {format_number(plan['files_after'])}"
        printer.line(f"{files} would become {format_number(plan['files_added'])}; {after}")
    elif not plan and response["compacted"]:
        stats = response["stats"]
        files = f"{format_number(stats['files_before'])} files became {format_number(stats['files_after'])}"
        printer.line(f"{files} in {stats['compaction_time_ms']} ms")
    elif reason:
        printer.line(f"nothing to merge: {_as_option(reason)}")
    else:
        printer.line("nothing to merge")


def _show_periods(response: Response, args: Args, printer: Printer) -> None:
    for period in response.get("periods") or ():
        files, rows = plural(period["files_before"], "file"), plural(period["records"], "row")
        after = format_number(period["files_after"])
        if args.dry_run:
            printer.line(f"{files} ({rows}) of {period['period']} would become {after}")
            continue
        if period["files_before"] <= period["files_after"]:
            printer.line(f"{period['period']} is compacted already: {files} ({rows})")
        else:
            printer.success(f"Compacted {files} ({rows})")
        output = shown_path(period["output"]) if period.get("output") else f"{table_name(args)}, {period['period']}"
        printer.line(f"  Output: {output}")
        if deleted := period.get("source_files_deleted"):
            printer.line(f"  Deleted {plural(deleted, 'source file')}")
    for period in response.get("periods_skipped") or ():
        missing = show_dates(period.get("missing_dates") or [])
        printer.line(f"{period['period']} left out: {period['reason']}{missing and f': {missing}'}")


_OPTIONS = (
    flag("--force", "merge even two small files, and even if compaction is disabled"),
    number("--target-file-size-mb", "the size of merged files (default: the table's)"),
    number("--max-file-size-mb", "merge files below this size (default: the table's)"),
    number("--min-files", "how many small files in one partition are worth merging (default: the table's)"),
    number("--max-files", "the most files to merge at once (default: the table's)"),
    PARTITION_FILTER,
    argument("--compression", "CODEC", "the codec of merged files: zstd, snappy, gzip or uncompressed"),
    argument("--strategy", None, "how to arrange the rows", choices=("binpack", "sort", "zorder")),
    argument("--sort-by", "COLUMNS", "the columns to sort by, separated by commas", parse=split_list),
    flag("--rewrite-manifests", "also merge the manifests, sorted by partition"),
    flag("--no-expire-snapshots", "keep old snapshots", "expire_snapshots", False),
    number("--snapshot-retention-hours", "expire snapshots older than this (default: the table's setting)"),
    argument("--period", "PERIOD", "merge the days of a month or week, such as 2024-01 or 2024-W05; due: all due ones"),
    flag("--allow-incomplete", "with --period: also if dates are missing"),
    flag("--delete-source", "with --period: delete the exported daily files"),
)
"""Every option of COMPACT."""
_COMMAND = Command(
    "compact",
    "Merge the small files of one table, or of all that need it.",
    (
        argument("table", "TABLE|FILE", "the table's name, or a YAML or JSON file that describes it", None, nargs="?"),
        flag("--all-recommended", "every table that RECOMMEND recommends, most urgent first", None),
        repeated(
            "--tenant", "NAME", "the tenant, or several separated by commas (default: FIRN_TENANT, or default)", None
        ),
        argument(
            "--namespace",
            "NAME",
            "the namespace (default: default; with --all-recommended, all namespaces)",
            None,
            short="-n",
        ),
        argument("--table", "TABLE", "the table; with --all-recommended, only tables of this name", None, dest="only"),
        *_OPTIONS,
        flag("--dry-run", "only show what would be done"),
    ),
    operation="COMPACT",
    address=table_address,
    complete=_complete,
    job=True,
    run=_compact,
    show=_show_compacted,
    details="One compaction merges a limited number of files; --all-recommended goes on until each table has as few as "
    "RECOMMEND promised. With it or --table, --json prints an object per table instead of a line of text. "
    "`firn compact` and `firn table compact` are the same.",
)
COMMANDS = (replace(_COMMAND, name="table compact"), _COMMAND)
