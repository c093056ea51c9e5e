"""`firn compact`: has a service compact all tables that are worth it, for cron and for hands."""

import json
from dataclasses import dataclass
from typing import Any

from service.cli.call import Call
from service.cli.command import FAILED, UNREACHABLE, WELL, Command, argument, flag
from service.cli.examples import layouts as examples
from service.cli.remote import PATIENT, Door, Unreachable
from service.cli.work import have_done

_MANY = 10_000


@dataclass(frozen=True)
class Target:
    """A table to compact, and why."""

    tenant: str
    namespace: str
    table: str
    why: str | None = None


def _compact(call: Call) -> int:
    """Compact what the arguments say, a line per table; the exit code."""
    if not call.args.all_recommended and not call.args.table:
        call.args.refuse("which tables is not said: --table names one, --all-recommended means all that are worth it")
    with call.door(pauses_s=PATIENT) as door:
        return _Compaction(door, call, _tenants(call)).run()


def _tenants(call: Call) -> list[str]:
    named: list[str] = call.args.tenant or [call.args.usual_tenant]
    found = [tenant.strip() for each in named for tenant in each.split(",") if tenant.strip()]
    return list(dict.fromkeys(found)) or ["default"]


@dataclass
class _Compaction:
    """The tables of one call, one after the other. One that fails keeps no other from its turn."""

    door: Door
    call: Call
    tenants: list[str]
    failed: int = 0
    looked_at: int = 0
    answered: bool = False

    def run(self) -> int:
        for tenant in self.tenants:
            for target in self._targets(tenant):
                self.looked_at += 1
                self.failed += not self._one(target)
        if self.failed:
            return FAILED if self.answered else UNREACHABLE
        if not self.looked_at and not self.call.args.json:
            self._print("no table is worth compacting")
        return WELL

    def _targets(self, tenant: str) -> list[Target]:
        wanted = self.call.args
        if not wanted.all_recommended:
            return [Target(tenant, wanted.namespace or "default", wanted.table)]
        request = {"operation": "RECOMMEND", "tenant_id": tenant, "limit": _MANY}
        if wanted.namespace:
            request["namespace"] = wanted.namespace
        try:
            answer = self.door.ask(request)
        except Unreachable as e:
            self._fail(str(e))
            return []
        self.answered = True
        if not answer["success"]:
            self._fail(f"the recommendations for {tenant}: {_shown(answer['error'])}")
            return []
        return [
            Target(tenant, known["namespace"], known["table"], known["reason"])
            for known in answer["recommendations"]
            if known["recommended"] and wanted.table in (None, known["table"])
        ]

    def _one(self, target: Target) -> bool:
        """Compact one table and say what came of it; whether it went well."""
        address = {"tenant_id": target.tenant, "namespace": target.namespace, "table": target.table}
        if self.call.args.dry_run:
            self._say(target, {**address, "why": target.why}, f"would be compacted{_because(target.why)}")
            return True
        try:
            with self.call.watching(f"compact {target.namespace}.{target.table}") as watch:
                answer = have_done(self.door, {"operation": "COMPACT", **address}, watch)
            self.answered = True
        except Unreachable as e:
            self.call.say(str(e))
            answer = {"success": False, "error": {"code": "UNREACHABLE", "message": str(e)}}
        if not answer["success"]:
            error = {key: answer["error"][key] for key in ("code", "message")}
            self._say(target, {**address, "success": False, "error": error}, f"FAILED: {_shown(error)}")
            return False
        stats = answer["stats"]
        if answer["compacted"]:
            took = f"in {stats['compaction_time_ms']} ms"
            line = f"{stats['files_before']} files became {stats['files_after']} {took}"
        else:
            line = f"nothing to merge{_because(answer['reason'])}"
        told = {"success": True, "compacted": answer["compacted"], "reason": answer["reason"], "stats": stats}
        self._say(target, {**address, **told}, line)
        return True

    def _say(self, target: Target, told: dict[str, Any], line: str) -> None:
        name = f"{target.namespace}.{target.table}"
        if len(self.tenants) > 1:
            name = f"{target.tenant}.{name}"
        self._print(json.dumps(told, separators=(",", ":")) if self.call.args.json else f"{name}: {line}")

    def _print(self, line: str) -> None:
        # At once: who looks sees each table as it is done.
        print(line, file=self.call.stdout, flush=True)

    def _fail(self, problem: str) -> None:
        self.call.say(problem)
        self.failed += 1


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _shown(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']}"


COMMAND = Command(
    "compact",
    "Compact one table, or all that are worth it.",
    (
        flag("--all-recommended", "every table that RECOMMEND recommends, the most worthwhile first"),
        argument(
            "--tenant",
            metavar="NAME",
            action="append",
            help="whose tables, also several, with commas or the option repeated; FIRN_TENANT, or default",
        ),
        argument(
            "--namespace",
            metavar="NAME",
            help="the table's namespace (default), or with --all-recommended: only those of this one",
        ),
        argument("--table", metavar="TABLE", help="the table, or with --all-recommended: only this one"),
        flag("--dry-run", "say which tables, and compact none"),
    ),
    examples.COMPACT_ALL,
    run=_compact,
    spark=True,
    details="--json prints an object per table instead of a line of text.",
)
