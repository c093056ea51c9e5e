"""`firn compact`: has a running service compact tables, for cron and for hands."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service import wire
from service.remote import Remote, Unreachable

URL = "http://localhost:8080"
WELL, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3
_MANY = 10_000


class Refused(Exception):
    """The service refused to say which tables are worth it."""


@dataclass(frozen=True)
class Target:
    """A table to compact, and why."""

    namespace: str
    table: str
    why: str | None = None


def compact(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Compact what the arguments say, a line per table; the exit code."""
    tenant: str = arguments.tenant or environ.get("FIRN_TENANT", "")
    url: str = arguments.url or environ.get("FIRN_URL") or URL
    if not tenant:
        arguments.refuse("whose tables is not said: --tenant, or FIRN_TENANT, names the tenant")
    if not arguments.all_recommended and not arguments.table:
        arguments.refuse("which tables is not said: --table names one, --all-recommended means all that are worth it")
    if not url.startswith(("http://", "https://")):
        arguments.refuse(f"{url!r} is no address of a service; write it as {URL}")
    failed, remote = 0, Remote(url)
    try:
        for target in _targets(remote, tenant, arguments):
            failed += not _one(remote, tenant, target, arguments)
    except Refused as e:
        _complain(str(e))
        return FAILED
    except Unreachable as e:
        _complain(str(e))
        return UNREACHABLE
    return FAILED if failed else WELL


def _targets(remote: Remote, tenant: str, arguments: argparse.Namespace) -> Iterator[Target]:
    if not arguments.all_recommended:
        yield Target(arguments.namespace or "default", arguments.table)
        return
    request = {"operation": "RECOMMEND", "tenant_id": tenant, "limit": _MANY}
    if arguments.namespace:
        request["namespace"] = arguments.namespace
    answer = remote.ask(request)
    if not answer["success"]:
        raise Refused(f"the recommendations: {_shown(answer['error'])}")
    found = [
        Target(known["namespace"], known["table"], known["reason"])
        for known in answer["recommendations"]
        if known["recommended"] and arguments.table in (None, known["table"])
    ]
    if not found and not arguments.json:
        print("no table is worth compacting", flush=True)
    yield from found


def _one(remote: Remote, tenant: str, target: Target, arguments: argparse.Namespace) -> bool:
    """Compact one table and say what came of it; whether it went well."""
    address = {"namespace": target.namespace, "table": target.table}
    name = f"{target.namespace}.{target.table}"
    if arguments.dry_run:
        _say({**address, "why": target.why}, f"{name}: would be compacted{_because(target.why)}", arguments)
        return True
    answer = remote.ask({"operation": "COMPACT", "tenant_id": tenant, **address})
    if not answer["success"]:
        error = {key: answer["error"][key] for key in ("code", "message")}
        _say({**address, "success": False, "error": error}, f"{name}: FAILED: {_shown(error)}", arguments)
        return False
    stats = answer["stats"]
    if answer["compacted"]:
        line = (
            f"{name}: {stats['files_before']} files became {stats['files_after']} in {stats['compaction_time_ms']} ms"
        )
    else:
        line = f"{name}: nothing to merge{_because(answer['reason'])}"
    told = {"success": True, "compacted": answer["compacted"], "reason": answer["reason"], "stats": stats}
    _say({**address, **told}, line, arguments)
    return True


def _say(told: dict[str, Any], line: str, arguments: argparse.Namespace) -> None:
    print(wire.render(told).decode().rstrip("\n") if arguments.json else line, flush=True)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _shown(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']}"


def _complain(problem: str) -> None:
    print(f"firn: {problem}", file=sys.stderr, flush=True)
