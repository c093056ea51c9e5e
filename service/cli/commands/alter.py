"""`firn table alter`: one request from options and a file of changes."""

from typing import Any

from service.cli.command import Args, Command, Request, UsageError, argument, repeated
from service.cli.commands.tables import TABLE, table_name
from service.cli.examples import layouts as examples
from service.cli.files import parse_value, read_object, set_property, table_address
from service.cli.values import full_name, parse_assignments, parse_key, suggestion

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
_TYPE_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
_UNITED = ("drop_columns", "unset_properties")


def _alter(args: Args) -> Request:
    base = {"operation": OPERATION, **table_address(args)}
    changes = _read_changes(args.changes, base) if args.changes else {}
    for name, value in _changes_of_options(args).items():
        changes[name] = _combine(changes[name], value, name, args.changes) if name in changes else value
    if not changes:
        raise UsageError("no change is given; `firn table alter --help` lists them")
    return {**base, **changes}


def _changes_of_options(args: Args) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, value in parse_assignments(args.set, "--set").items():
        set_property(properties, name, parse_value(value, f"--set {name}"), f"--set {name}")
    options = {
        "add_columns": {name: {"type": kind} for name, kind in parse_assignments(args.add, "--add").items()},
        "rename_columns": parse_assignments(args.rename, "--rename"),
        "drop_columns": args.drop,
        "change_types": parse_assignments(args.type, "--type"),
        "set_nullable": dict.fromkeys(args.nullable or (), True),
        "set_properties": properties,
        "unset_properties": args.unset,
    }
    changes: dict[str, Any] = {name: value for name, value in options.items() if value}
    if args.primary_key is not None:
        changes["primary_key"] = parse_key(args.primary_key)
    if args.description is not None:
        changes["description"] = args.description
    return changes


def _read_changes(path: str, base: Request) -> dict[str, Any]:
    """The changes in a file. It may be a whole request, if operation and table are the same."""
    changes = read_object(path)
    for name, value in changes.items():
        if name in base:
            if value != base[name]:
                raise UsageError(f"{path}: {name} is {value!r}, but this is about {base[name]!r}; leave it out there")
        elif name not in CHANGES:
            raise UsageError(f"{path}: {name!r} is not a change of a table; {suggestion(str(name), CHANGES)}")
        elif value is not None and not isinstance(value, CHANGES[name]):
            raise UsageError(f"{path}: {name} must be {_TYPE_NAMES[CHANGES[name]]}, not {value!r}")
    return {name: value for name, value in changes.items() if name in CHANGES and value is not None}


def _combine(in_file: Any, in_options: Any, name: str, path: str) -> Any:
    """One field from both the file and the options, which must not contradict each other."""
    if name in _UNITED:
        return [*in_file, *(each for each in in_options if each not in in_file)]
    if isinstance(in_file, dict) and isinstance(in_options, dict):
        combined = dict(in_file)
        for key, value in in_options.items():
            combined[key] = _combine(in_file[key], value, f"{name}.{key}", path) if key in in_file else value
        return combined
    if (type(in_file), in_file) != (type(in_options), in_options):
        raise UsageError(f"{path} says otherwise of {name} than the command line; leave it out of one of them")
    return in_options


def _question(request: Request) -> str | None:
    dropped = request.get("drop_columns")
    if not dropped:
        return None
    names = ", ".join(map(str, dropped))
    return f"The columns {names} of the table {full_name(request)} are dropped, with what they hold."


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
        show=lambda response, args, printer: printer.line(f"altered {table_name(args)}"),
        question=_question,
        details="Options and file make one request; if they disagree, nothing is sent.",
    ),
)
