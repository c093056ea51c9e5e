"""`firn compact`: has a running service compact tables, for cron and for hands."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service import wire
from service.remote import Remote, Unreachable

URL, TENANT = "http://localhost:8080", "default"
WELL, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3
_MANY = 10_000


@dataclass(frozen=True)
class Target:
    """A table to compact, and why."""

    tenant: str
    namespace: str
    table: str
    why: str | None = None


def compact(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Compact what the arguments say, a line per table; the exit code."""
    url: str = arguments.url or environ.get("FIRN_URL") or URL
    if not arguments.all_recommended and not arguments.table:
        arguments.refuse("which tables is not said: --table names one, --all-recommended means all that are worth it")
    if not url.startswith(("http://", "https://")):
        arguments.refuse(f"{url!r} is no address of a service; write it as {URL}")
    return _Compaction(Remote(url), arguments, _tenants(arguments, environ)).run()


def _tenants(arguments: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
    named: list[str] = arguments.tenant or [environ.get("FIRN_TENANT", "")]
    found = [tenant.strip() for each in named for tenant in each.split(",") if tenant.strip()]
    return list(dict.fromkeys(found)) or [TENANT]


@dataclass
class _Compaction:
    """The tables of one call, one after the other. One that fails keeps no other from its turn."""

    remote: Remote
    arguments: argparse.Namespace
    tenants: list[str]
    failed: int = 0
    looked_at: int = 0

    def run(self) -> int:
        for tenant in self.tenants:
            for target in self._targets(tenant):
                self.looked_at += 1
                self.failed += not self._one(target)
        if self.failed:
            return FAILED if self.remote.answered else UNREACHABLE
        if not self.looked_at and not self.arguments.json:
            print("no table is worth compacting", flush=True)
        return WELL

    def _targets(self, tenant: str) -> list[Target]:
        wanted: argparse.Namespace = self.arguments
        if not wanted.all_recommended:
            return [Target(tenant, wanted.namespace or "default", wanted.table)]
        request = {"operation": "RECOMMEND", "tenant_id": tenant, "limit": _MANY}
        if wanted.namespace:
            request["namespace"] = wanted.namespace
        try:
            answer = self.remote.ask(request)
        except Unreachable as e:
            self._fail(str(e))
            return []
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
        if self.arguments.dry_run:
            self._say(target, {**address, "why": target.why}, f"would be compacted{_because(target.why)}")
            return True
        try:
            answer = self.remote.have_done({"operation": "COMPACT", **address})
        except Unreachable as e:
            _complain(str(e))
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
        print(wire.render(told).decode().rstrip("\n") if self.arguments.json else f"{name}: {line}", flush=True)

    def _fail(self, problem: str) -> None:
        _complain(problem)
        self.failed += 1


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _shown(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']}"


def _complain(problem: str) -> None:
    print(f"firn: {problem}", file=sys.stderr, flush=True)
