"""`firn profile …`: add, list and remove profiles."""

from service.cli import profiles
from service.cli.call import Invocation
from service.cli.command import OK, Command, UsageError, argument
from service.cli.terminal.printer import PageColumn, printer_for

_NAME = argument("name", "PROFILE", "the profile's name")
_COLUMNS = (
    PageColumn("PROFILE", name=True, value=lambda item: item[0]),
    PageColumn("URL", value=lambda item: _shown(item[1].get("url"))),
    PageColumn("TENANT", value=lambda item: item[1].get("tenant")),
)


def _shown(url: str | None) -> str | None:
    """An address without its login."""
    from service.cli.connection.targets import parse_address

    return parse_address(url)[0] if url else None


def _add(call: Invocation) -> int:
    args = call.args
    given = {name: getattr(args, name) for name in ("url", "tenant") if getattr(args, name)}
    if not given:
        raise UsageError("the profile says nothing; use --url, --tenant, or both")
    _shown(given.get("url"))  # raises UsageError if it is not an address
    known = profiles.read(call.environ)
    profiles.write(call.environ, {**known, args.name: given})
    word = "replaced" if args.name in known else "added"
    print(f"{word} {args.name}; use it with -p {args.name}", file=call.stdout, flush=True)
    return OK


def _list(call: Invocation) -> int:
    printer = printer_for(call.stdout, call.environ)
    printer.items(_COLUMNS, sorted(profiles.read(call.environ).items()))
    printer.finish()
    return OK


def _remove(call: Invocation) -> int:
    name = call.args.name
    profiles.find(call.environ, name)
    profiles.write(call.environ, {key: value for key, value in profiles.read(call.environ).items() if key != name})
    print(f"removed {name}", file=call.stdout, flush=True)
    return OK


COMMANDS = (
    Command(
        "profile add",
        "Add a profile, or replace it: a name for a service and a tenant.",
        (
            _NAME,
            argument("--url", "URL", "the service's address"),
            argument("--tenant", "NAME", "the tenant"),
        ),
        run=_add,
        local=True,
        details="Profiles are in ~/.config/firn/profiles.json, which only you can read.",
    ),
    Command("profile list", "List profiles.", run=_list, local=True),
    Command("profile remove", "Remove a profile.", (_NAME,), run=_remove, local=True),
)
