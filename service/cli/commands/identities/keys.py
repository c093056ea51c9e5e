"""`firn key …` and `firn audit`: API keys, and who sent which requests."""

import re
from typing import TYPE_CHECKING, Any

from service.cli.call import Invocation, send_request
from service.cli.command import Args, Command, Request, Response, UsageError, argument, flag, number, repeated
from service.cli.commands.tables import show_items
from service.cli.terminal.format import format_time, plural
from service.cli.terminal.printer import PageColumn, Printer

if TYPE_CHECKING:
    from service.operations.operation import Operation

_KEY = argument("key_id", "KEY", "the key's id, as `firn key list` shows it")
_OFFLINE = flag(
    "--offline", "use the ledger of FIRN_HOME or FIRN_LEDGER__URL on this machine, and no service", field=None
)
_HOURS_FIELD = "expires_hours"
_HOURS = {"h": 1, "d": 24, "w": 168}
_COLUMNS = (
    PageColumn("KEY", whole=True, value=lambda key: key["key_id"]),
    PageColumn("PRINCIPAL", name=True, value=lambda key: key["principal"]),
    PageColumn("ROLES", value=lambda key: " ".join(key["roles"])),
    PageColumn("STATE", whole=True, value=lambda key: _state(key)),
    PageColumn("EXPIRES", whole=True, value=lambda key: format_time(key.get("expires_at"))),
    PageColumn("LAST USED", whole=True, value=lambda key: format_time(key.get("last_used_at"))),
    PageColumn("NOTE", value=lambda key: key.get("name")),
)
_ENTRY_COLUMNS = (
    PageColumn("AT", whole=True, value=lambda entry: format_time(entry["answered_at"])),
    PageColumn("PRINCIPAL", name=True, value=lambda entry: entry.get("principal")),
    PageColumn("REQUEST", value=lambda entry: entry["requested"]),
    PageColumn("TABLES", name=True, value=lambda entry: " ".join(entry["tables"])),
    PageColumn("OUTCOME", whole=True, value=lambda entry: entry["outcome"]),
    PageColumn("CLIENT", value=lambda entry: entry.get("client")),
)


def _state(key: dict[str, Any]) -> str:
    if key["live"]:
        return "live"
    return "revoked" if "revoked_at" in key else "expired"


def _parse_hours(text: str) -> int:
    """A number of hours, days or weeks, such as 12h, 90d or 0h."""
    found = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    if found is None:
        raise UsageError(f"{text!r} is not a time; write a number of hours, days or weeks, such as 12h or 90d")
    return int(found[1]) * _HOURS[found[2]]


def _run(call: Invocation) -> int:
    if not call.args.offline:
        return send_request(call)
    return call.show(_send_offline(call, call.request()))


def _send_offline(call: Invocation, request: Request) -> Response:
    """Run a request on the ledger in this process: who can open the ledger is an administrator."""
    import json
    from importlib import import_module

    from pydantic import ValidationError

    from service.errors import FirnError
    from service.identity.compose import local_api_keys
    from service.model.call import Call
    from service.model.identity.principal import LOCAL
    from service.model.validation import refusal
    from service.operations import envelope
    from service.operations.operation import Parts
    from service.settings import load

    name = request["operation"].lower()
    operation: Operation = getattr(import_module(f"handlers.{name}"), name)
    try:
        asked = operation.request.model_validate(request)
        with local_api_keys(load(call.environ)) as keys:
            result: Any = operation.bind(Parts({}, keys))(asked, Call(principal=LOCAL))
            return dict(json.loads(envelope.success(result, "", 0)))
    except ValidationError as e:
        return dict(json.loads(envelope.failure(refusal(e, operation.request), "")))
    except FirnError as e:
        return dict(json.loads(envelope.failure(e, "")))


def _show_new(response: Response, args: Args, printer: Printer) -> None:
    ends = response.get("old_key_ends_at")
    printer.pairs(
        {
            "key": response["api_key"],
            "id": response["key_id"],
            "principal": response["principal"],
            "roles": " ".join(response["roles"]),
            "expires": format_time(response["expires_at"]) if "expires_at" in response else None,
            "old key ends": format_time(ends) if ends else None,
        }
    )
    printer.line("Keep the key now: it is not stored and cannot be shown again.")


def _show_audit(response: Response, args: Args, printer: Printer) -> None:
    if not response["enabled"]:
        printer.line("the audit log is off; FIRN_AUDIT__ENABLED=true, or authentication, turns it on")
    entries = response["entries"]
    if entries:
        printer.items(_ENTRY_COLUMNS, entries)
    printer.line(plural(len(entries), "request"))


COMMANDS = (
    Command(
        "key create",
        "Create an API key.",
        (
            argument("principal", "PRINCIPAL", "who uses the key: a person or a program"),
            repeated(
                "--role",
                "ROLE",
                "reader, writer or admin of the tenant, or with a place, as in writer:acme/shop (default: reader)",
                "roles",
            ),
            argument("--note", "TEXT", "what the key is for", "name"),
            argument("--expires", "TIME", "when it expires, such as 90d (default: never)", _HOURS_FIELD, _parse_hours),
            _OFFLINE,
        ),
        operation="CREATE_KEY",
        constants={"roles": ["reader"]},
        run=_run,
        show=_show_new,
        details="The first key of an administrator is created on the machine of the service, with --offline.",
    ),
    Command(
        "key list",
        "List the API keys of a tenant.",
        (
            argument("--principal", "PRINCIPAL", "only the keys of this one"),
            flag("--all", "also keys that expired or were revoked", "include_ended"),
            _OFFLINE,
        ),
        operation="LIST_KEYS",
        lists=("keys",),
        run=_run,
        show=show_items("key", _COLUMNS),
    ),
    Command(
        "key rotate",
        "Replace an API key by a new one with the same roles.",
        (
            _KEY,
            argument("--keep", "TIME", "how long the old key still works (default: 24h)", "keep_hours", _parse_hours),
            argument("--expires", "TIME", "when the new key expires", _HOURS_FIELD, _parse_hours),
            _OFFLINE,
        ),
        operation="ROTATE_KEY",
        run=_run,
        show=_show_new,
    ),
    Command(
        "key revoke",
        "End an API key, on all instances within 5 s.",
        (_KEY, _OFFLINE),
        operation="REVOKE_KEY",
        run=_run,
        show=lambda response, args, printer: printer.line(f"revoked {response['key_id']} of {response['principal']}"),
    ),
    Command(
        "audit",
        "List who sent which requests, the latest first.",
        (
            number("--limit", "show at most this many (default: all)"),
            argument("--principal", "PRINCIPAL", "only requests of this sender"),
            argument("--operation", "NAME", "only requests for this operation", "only"),
            argument("--outcome", "CODE", "only this outcome: ok, or an error's code"),
            argument("--since", "TIME", "only requests at this time or later, such as 2024-01-31T12:00:00Z"),
            argument("--before", "TIME", "only requests before this time"),
        ),
        operation="AUDIT_LOG",
        lists=("entries",),
        show=_show_audit,
    ),
)
