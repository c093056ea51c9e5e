"""`firn table alter`: what its options and a file of changes say together."""

from typing import Any

from service.cli.command import Answer, Args, Command, Misused, Request, argument, repeated
from service.cli.examples import layouts as examples
from service.cli.files import address, put, read, scalar
from service.cli.page import Page
from service.cli.tables import TABLE
from service.cli.values import assignments, full_name, hint, key_of

OPERATION = "ALTER_TABLE"
CHANGES: dict[str, type] = {
    "add_columns": dict,
    "rename_columns": dict,
    "drop_columns": list,
    "move_columns": list,
    "change_types": dict,
    "set_nullable": dict,
    "set_properties": dict,
    "unset_properties": list,
    "description": str,
    "primary_key": list,
}
_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
_GATHERED = ("drop_columns", "unset_properties")


def _alter(args: Args) -> Request:
    asked = {"operation": OPERATION, **address(args)}
    changes = _of_file(args.changes, asked) if args.changes else {}
    for name, value in _of_options(args).items():
        changes[name] = _both(changes[name], value, name, args.changes) if name in changes else value
    if not changes:
        raise Misused("no change is said; `firn table alter --help` lists them")
    return {**asked, **changes}


def _of_options(args: Args) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, value in assignments(args.set, "--set").items():
        put(properties, name, scalar(value, f"--set {name}"), f"--set {name}")
    wishes = {
        "add_columns": {name: {"type": kind} for name, kind in assignments(args.add, "--add").items()},
        "rename_columns": assignments(args.rename, "--rename"),
        "drop_columns": args.drop,
        "change_types": assignments(args.type, "--type"),
        "set_nullable": dict.fromkeys(args.nullable or (), True),
        "set_properties": properties,
        "unset_properties": args.unset,
    }
    found: dict[str, Any] = {name: value for name, value in wishes.items() if value}
    if args.primary_key is not None:
        found["primary_key"] = key_of(args.primary_key)
    if args.description is not None:
        found["description"] = args.description
    return found


def _of_file(path: str, asked: Request) -> dict[str, Any]:
    """The changes of a file. It may be a whole request, as long as that is the same one."""
    said = read(path)
    for name, value in said.items():
        if name in asked:
            if value != asked[name]:
                raise Misused(f"{path}: {name} is {value!r}, but this is about {asked[name]!r}; leave it out there")
        elif name not in CHANGES:
            raise Misused(f"{path}: {name!r} is not a change of a table; {hint(str(name), CHANGES)}")
        elif value is not None and not isinstance(value, CHANGES[name]):
            raise Misused(f"{path}: {name} must be {_KINDS[CHANGES[name]]}, not {value!r}")
    return {name: value for name, value in said.items() if name in CHANGES and value is not None}


def _both(written: Any, said: Any, name: str, path: str) -> Any:
    """What the file and the options say of one field."""
    if isinstance(said, dict):
        return _joined(written, said, name, path)
    if name in _GATHERED:
        return [*written, *(each for each in said if each not in written)]
    if written != said:
        raise _contradiction(name, path)
    return said


def _joined(written: dict[str, Any], said: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    made = dict(written)
    for key, value in said.items():
        there, place = made.get(key), f"{name}.{key}"
        if key not in made:
            made[key] = value
        elif isinstance(there, dict) and isinstance(value, dict):
            made[key] = _joined(there, value, place, path)
        elif (type(there), there) != (type(value), value):
            raise _contradiction(place, path)
    return made


def _contradiction(name: str, path: str) -> Misused:
    return Misused(f"{path} says otherwise of {name} than the command line; leave it out of one of them")


def _ask(request: Request) -> str | None:
    dropped = request.get("drop_columns")
    if not dropped:
        return None
    names = ", ".join(map(str, dropped))
    return f"The columns {names} of the table {full_name(request)} are dropped, with what they hold."


def _altered(answer: Answer, args: Args, page: Page) -> None:
    page.line(f"altered {full_name(address(args))}")


COMMANDS = (
    Command(
        "table alter",
        "Change a table's columns, properties, description or key.",
        (
            TABLE,
            repeated("--add", "COLUMN=TYPE", "add a column"),
            repeated("--rename", "COLUMN=NAME", "rename a column"),
            repeated("--drop", "COLUMN", "drop a column"),
            repeated("--type", "COLUMN=TYPE", "widen a column's type"),
            repeated("--nullable", "COLUMN", "let a column be null"),
            repeated("--set", "PROPERTY=VALUE", "set a property"),
            repeated("--unset", "PROPERTY", "unset a property"),
            argument("--primary-key", metavar="COLUMNS", help="the key's columns, with commas; '' for no key"),
            argument("--description", metavar="TEXT", help="what the table is for"),
            argument("--changes", metavar="FILE", help="a YAML or JSON file with fields of ALTER_TABLE"),
        ),
        examples.ALTER,
        request=_alter,
        show=_altered,
        question=_ask,
        details="Options and file are one request; where they disagree, nothing is sent.",
    ),
)
