"""`firn table alter`: one request from options and a file of changes."""

from functools import partial
from typing import Any

from service.cli.call import failure
from service.cli.command import Args, Request, Response, UsageError, argument, repeated
from service.cli.commands.tables import table_command, table_name
from service.cli.connection.remote import Connection
from service.cli.files import parse_value, read_object, set_property
from service.cli.values import address_of, full_name, parse_assignments, parse_key, suggestion

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


def _complete(request: Request, args: Args) -> Request:
    if args.primary_key is not None:
        request["primary_key"] = parse_key(args.primary_key)
    if args.description is not None:
        request["description"] = args.description
    changes = {name: value for name, value in request.items() if name in CHANGES}
    base = {name: value for name, value in request.items() if name not in CHANGES}
    if args.changes:
        changes = _combine(_read_changes(args.changes, base), changes, args.changes)
    if not changes:
        raise UsageError("no change is given; `firn table alter --help` lists them")
    return {**base, **changes}


def _parse_new_columns(pairs: list[str]) -> dict[str, Any]:
    return {name: {"type": kind} for name, kind in parse_assignments(pairs, "--add").items()}


def _parse_properties(pairs: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, value in parse_assignments(pairs, "--set").items():
        set_property(properties, name, parse_value(value, f"--set {name}"), f"--set {name}")
    return properties


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


def _combine(in_file: dict[str, Any], in_options: dict[str, Any], path: str, prefix: str = "") -> dict[str, Any]:
    """The fields of both the file and the options, which must not contradict each other."""
    combined = dict(in_file)
    for key, value in in_options.items():
        there, name = in_file.get(key), f"{prefix}{key}"
        if key not in in_file:
            combined[key] = value
        elif name in _UNITED:
            combined[key] = list(dict.fromkeys([*in_file[key], *value]))
        elif isinstance(there, dict) and isinstance(value, dict):
            combined[key] = _combine(there, value, path, f"{name}.")
        elif (type(there), there) != (type(value), value):
            raise UsageError(f"{path} and the command line disagree about {name}; leave it out of one of them")
    return combined


def _question(request: Request) -> str | None:
    if not request.get("drop_columns"):
        return None
    names, table = request["drop_columns"], full_name(request)
    if len(names) == 1:
        return f"The column {names[0]} of the table {table} is dropped, with its data."
    return f"The columns {', '.join(map(str, names))} of the table {table} are dropped, with their data."


def _check(request: Request, connection: Connection) -> Response | None:
    """The response to dropping a column that the table does not have."""
    response = connection.send({"operation": "DESCRIBE_TABLE", **address_of(request)})
    if not response["success"]:
        return response
    columns = response["description"]["schema"]["fields"]
    for name in request["drop_columns"]:
        if name not in columns and str(name).partition(".")[0] not in columns:
            hint = suggestion(str(name), columns)
            return failure("UNKNOWN_FIELD", f"{full_name(request)} has no column {name}; {hint}")
    return None


COMMANDS = (
    table_command(
        "table alter",
        "Change a table's columns, properties, description or key.",
        repeated("--add", "COLUMN=TYPE", "add a column", "add_columns", _parse_new_columns),
        repeated(
            "--rename",
            "COLUMN=NAME",
            "rename a column",
            "rename_columns",
            partial(parse_assignments, option="--rename"),
        ),
        repeated("--drop", "COLUMN", "drop a column", "drop_columns"),
        repeated(
            "--type",
            "COLUMN=TYPE",
            "widen a column's type",
            "change_types",
            partial(parse_assignments, option="--type"),
        ),
        repeated(
            "--nullable", "COLUMN", "let a column be null", "set_nullable", lambda names: dict.fromkeys(names, True)
        ),
        repeated("--set", "PROPERTY=VALUE", "set a property", "set_properties", _parse_properties),
        repeated("--unset", "PROPERTY", "unset a property", "unset_properties"),
        argument("--primary-key", "COLUMNS", "the key's columns, separated by commas; '' for no key", None),
        argument("--description", "TEXT", "what the table is for", None),
        argument("--changes", "FILE", "a YAML or JSON file with fields of ALTER_TABLE", None),
        operation="ALTER_TABLE",
        complete=_complete,
        check=_check,
        question=_question,
        show=lambda response, args, printer: printer.line(f"altered {table_name(args)}"),
        details="Options and file make one request; if they disagree, nothing is sent.",
    ),
)
