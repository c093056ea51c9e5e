"""`firn compact`: compact all tables that need it, from cron or by hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, UNREACHABLE, Command, Request, Response, argument, flag, repeated
from service.cli.connection.jobs import run_as_job
from service.cli.connection.remote import LONG_PAUSES_S, Connection, Unreachable
from service.cli.values import full_name, named_table, split_list

_LIMIT = 10_000


def _compact(call: Invocation) -> int:
    if not call.args.all_recommended and not call.args.table:
        call.args.error("no table is given; use --table for one, or --all-recommended for all that need it")
    given: list[str] = call.args.tenant or [call.args.default_tenant]
    tenants = list(dict.fromkeys(split_list(",".join(given)))) or ["default"]
    with call.connect(pauses_s=LONG_PAUSES_S) as connection:
        return _Compaction(connection, call, tenants).run()


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
            for address, reason in self._choose_tables(tenant):
                tables += 1
                if self.call.args.dry_run:
                    self._print_outcome(address, {"why": reason}, f"would be compacted{_because(reason)}")
                else:
                    self._compact(address)
        if self.failures:
            return FAILED if self.responded else UNREACHABLE
        if not tables and self.call.output == "table":
            self._print("no table is worth compacting")
        return OK

    def _choose_tables(self, tenant: str) -> Iterator[tuple[Request, str | None]]:
        """The addresses of the tables to compact, and the reasons."""
        args = self.call.args
        if not args.all_recommended:
            yield {"tenant_id": tenant, "namespace": "default", **named_table(args.table, args)}, None
            return
        table = named_table(args.table, args) if args.table else {}
        namespace = table.get("namespace") or args.namespace
        response = self._send(
            {
                "operation": "RECOMMEND",
                "tenant_id": tenant,
                "limit": _LIMIT,
                **({"namespace": namespace} if namespace else {}),
            }
        )
        if not response["success"]:
            self.failures += 1
            if response["error"]["code"] != "UNREACHABLE":
                self.call.notify(f"the recommendations for {tenant}: {_describe(response['error'])}")
            return
        for each in response["recommendations"]:
            if each["recommended"] and table.get("table") in (None, each["table"]):
                yield {"tenant_id": tenant, "namespace": each["namespace"], "table": each["table"]}, each["reason"]

    def _compact(self, address: Request) -> None:
        """Compact one table and print the outcome."""
        response = self._send({"operation": "COMPACT", **address}, f"compact {full_name(address)}")
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
            line = f"nothing to merge{_because(response['reason'])}"
        outcome = {key: response[key] for key in ("success", "compacted", "reason", "stats")}
        self._print_outcome(address, outcome, line)

    def _send(self, request: Request, job: str | None = None) -> Response:
        """Send a request, as a `job` of this name if it has one. A service that does not respond is an error, too."""
        try:
            if job is None:
                response = self.connection.send(request)
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
        print(line, file=self.call.stdout, flush=True)  # at once, so that a reader sees each table as it is done


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _describe(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']}"


COMMAND = Command(
    "compact",
    "Compact one table, or all that need it.",
    (
        flag("--all-recommended", "every table that RECOMMEND recommends, most urgent first"),
        repeated("--tenant", "NAME", "the tenant, or several separated by commas (default: FIRN_TENANT, or default)"),
        argument(
            "--namespace",
            "NAME",
            "the namespace (default: default; with --all-recommended, all namespaces)",
            short="-n",
        ),
        argument("--table", "TABLE", "the table; with --all-recommended, only tables of this name"),
        flag("--dry-run", "show which tables, and compact none"),
    ),
    operation="COMPACT",
    run=_compact,
    details="--json prints an object per table instead of a line of text.",
)
