"""`firn compact`: compact all tables that need it, from cron or by hand."""

import json
from dataclasses import dataclass
from typing import Any

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, UNREACHABLE, Command, Request, argument, flag
from service.cli.connection.jobs import run_as_job
from service.cli.connection.remote import LONG_PAUSES_S, Connection, Unreachable
from service.cli.examples import layouts as examples

_LIMIT = 10_000


@dataclass(frozen=True)
class TableToCompact:
    """A table to compact, and why."""

    tenant: str
    namespace: str
    table: str
    reason: str | None = None


def _compact(call: Invocation) -> int:
    if not call.args.all_recommended and not call.args.table:
        call.args.error("no table is given; use --table for one, or --all-recommended for all that need it")
    with call.connect(pauses_s=LONG_PAUSES_S) as connection:
        return _Compaction(connection, call, _tenants(call)).run()


def _tenants(call: Invocation) -> list[str]:
    given: list[str] = call.args.tenant or [call.args.default_tenant]
    tenants = [tenant.strip() for each in given for tenant in each.split(",") if tenant.strip()]
    return list(dict.fromkeys(tenants)) or ["default"]


@dataclass
class _Compaction:
    """Compacts tables one after the other, and prints a line for each. A failure does not stop the others."""

    connection: Connection
    call: Invocation
    tenants: list[str]
    failures: int = 0
    tables: int = 0
    responded: bool = False
    """Whether the service ever did."""

    def run(self) -> int:
        """Compact the tables that the arguments choose, and return the exit code."""
        for tenant in self.tenants:
            for table in self._choose_tables(tenant):
                self.tables += 1
                self.failures += not self._compact(table)
        if self.failures:
            return FAILED if self.responded else UNREACHABLE
        if not self.tables and not self.call.args.json:
            self._print("no table is worth compacting")
        return OK

    def _choose_tables(self, tenant: str) -> list[TableToCompact]:
        args = self.call.args
        if not args.all_recommended:
            return [TableToCompact(tenant, args.namespace or "default", args.table)]
        request: Request = {"operation": "RECOMMEND", "tenant_id": tenant, "limit": _LIMIT}
        if args.namespace:
            request["namespace"] = args.namespace
        try:
            response = self.connection.send(request)
        except Unreachable as e:
            return self._no_tables(str(e))
        self.responded = True
        if not response["success"]:
            return self._no_tables(f"the recommendations for {tenant}: {_describe(response['error'])}")
        return [
            TableToCompact(tenant, each["namespace"], each["table"], each["reason"])
            for each in response["recommendations"]
            if each["recommended"] and args.table in (None, each["table"])
        ]

    def _no_tables(self, problem: str) -> list[TableToCompact]:
        self.call.notify(problem)
        self.failures += 1
        return []

    def _compact(self, table: TableToCompact) -> bool:
        """Compact one table and print the outcome; whether it succeeded."""
        address = {"tenant_id": table.tenant, "namespace": table.namespace, "table": table.table}
        if self.call.args.dry_run:
            self._print_outcome(table, {"why": table.reason}, f"would be compacted{_because(table.reason)}")
            return True
        try:
            with self.call.progress(f"compact {table.namespace}.{table.table}") as on_progress:
                response = run_as_job(self.connection, {"operation": "COMPACT", **address}, on_progress)
            self.responded = True
        except Unreachable as e:
            self.call.notify(str(e))
            response = {"success": False, "error": {"code": "UNREACHABLE", "message": str(e)}}
        if not response["success"]:
            error = {key: response["error"][key] for key in ("code", "message")}
            self._print_outcome(table, {"success": False, "error": error}, f"FAILED: {_describe(error)}")
            return False
        stats = response["stats"]
        if response["compacted"]:
            files = f"{stats['files_before']} files became {stats['files_after']}"
            line = f"{files} in {stats['compaction_time_ms']} ms"
        else:
            line = f"nothing to merge{_because(response['reason'])}"
        outcome = {"success": True, **{key: response[key] for key in ("compacted", "reason", "stats")}}
        self._print_outcome(table, outcome, line)
        return True

    def _print_outcome(self, table: TableToCompact, outcome: dict[str, Any], line: str) -> None:
        if self.call.args.json:
            address = {"tenant_id": table.tenant, "namespace": table.namespace, "table": table.table}
            self._print(json.dumps({**address, **outcome}, separators=(",", ":")))
            return
        tenant = f"{table.tenant}." if len(self.tenants) > 1 else ""
        self._print(f"{tenant}{table.namespace}.{table.table}: {line}")

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
        argument(
            "--tenant",
            metavar="NAME",
            action="append",
            help="the tenant, or several with commas or repeated; FIRN_TENANT, or default",
        ),
        argument(
            "--namespace",
            metavar="NAME",
            help="the table's namespace (default); with --all-recommended, only tables of this namespace",
        ),
        argument("--table", metavar="TABLE", help="the table; with --all-recommended, only tables of this name"),
        flag("--dry-run", "show which tables, and compact none"),
    ),
    examples.COMPACT_ALL,
    run=_compact,
    needs_spark=True,
    details="--json prints an object per table instead of a line of text.",
)
