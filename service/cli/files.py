"""Read the files that commands are given: YAML, JSON, properties, and tables described in one of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from service.cli.command import Args, UsageError
from service.cli.values import address_of, named_table, single_tenant, suggestion

_YAML, _JSON, _PROPERTIES = (".yaml", ".yml"), (".json",), (".properties",)
_TABLE_KEYS = ("tenant", "namespace", "table", "schema", "partition", "properties", "split_points")
_ADDRESS_KEYS = ("tenant", "namespace", "table")
_OBJECT_KEYS = ("schema", "partition", "properties")
_TABLE_FILE_KEYS = ("name", "storage", "partitioning", "compaction", "ingestion", "export")


def is_file(text: str) -> bool:
    """Whether an argument TABLE|FILE is the path of a file."""
    return Path(text).suffix in _YAML + _JSON


def table_argument(args: Args) -> dict[str, Any]:
    """The table that the argument TABLE|FILE names or describes. Options override what the file contains."""
    in_file = read_table(args.table) if is_file(args.table) else named_table(args.table, args)
    return {
        "tenant_id": args.tenant or in_file.get("tenant") or single_tenant(args),
        "namespace": args.namespace or in_file.get("namespace") or "default",
        "table": in_file["table"],
        **{key: value for key, value in in_file.items() if key not in _ADDRESS_KEYS},
    }


def table_address(args: Args, *more: str) -> dict[str, Any]:
    """The tenant, namespace and name of the table that the argument TABLE|FILE names, and more fields of its file."""
    table = table_argument(args)
    return {**address_of(table), **{key: table[key] for key in more if key in table}}


def read_table(path: str) -> dict[str, Any]:
    """A file that describes a table: its name, and fields of CREATE_TABLE; of a table file, its text as `config`."""
    table = read_object(path)
    if is_table_file(table):
        named = {"table": table["name"]} if "name" in table else {}
        named |= {"namespace": table["namespace"]} if table.get("namespace") is not None else {}
        return {**_check_table(named, path, "name"), "config": read_text(path)}
    unknown = next((key for key in table if key not in _TABLE_KEYS), None)
    if unknown is not None:
        raise UsageError(f"{path}: {unknown!r} is not a field of a table; {suggestion(str(unknown), _TABLE_KEYS)}")
    _check_table(table, path, "table")
    for key in _OBJECT_KEYS:
        if key in table and not isinstance(table[key], dict):
            raise UsageError(f"{path}: {key} must be an object, not {table[key]!r}")
    return table


def is_table_file(value: dict[str, Any]) -> bool:
    """Whether a file is a table file, from which a table that takes a file a day is made."""
    return not {"table", "schema"} & value.keys() and any(key in value for key in _TABLE_FILE_KEYS)


def _check_table(table: dict[str, Any], path: str, name: str) -> dict[str, Any]:
    """The table, whose name and address must be texts; `name` is the key that has its name in the file."""
    if not isinstance(table.get("table"), str):
        raise UsageError(f"{path}: {name} is missing; give the table's name")
    for key in _ADDRESS_KEYS:
        if key in table and not isinstance(table[key], str):
            raise UsageError(f"{path}: {key} must be text, not {table[key]!r}; put it in quotes")
    return table


def read_schema(path: str) -> Any:
    """The schema of a file that contains nothing else, or that describes a table."""
    value = read_object(path)
    return value["schema"] if "schema" in value and "fields" not in value else value


def read_object(path: str) -> dict[str, Any]:
    """The object in a YAML, JSON or properties file."""
    kind = Path(path).suffix
    text = read_text(path)
    if kind in _PROPERTIES:
        return _parse_properties(text, path)
    value = parse_json(text, path) if kind in _JSON else _parse_yaml(text, path)
    if not isinstance(value, dict):
        raise UsageError(f"{path} must contain one object, not {type(value).__name__}")
    return value


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise _not_utf_8(path, e) from e
    except OSError as e:
        raise UsageError(f"{path} cannot be read ({e.strerror}); check the path") from e


def read_input(path: str, stdin: TextIO) -> tuple[str, str]:
    """The text of a file, or of stdin if its path is `-`, and how messages call it."""
    return (decode(stdin.buffer.read(), "stdin"), "stdin") if path == "-" else (read_text(path), path)


def decode(content: bytes, where: str) -> str:
    """The text of a stream, which is UTF-8 whatever the locale says."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise _not_utf_8(where, e) from e


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise UsageError(f"{where} is not JSON: {e}") from e
    except RecursionError as e:
        raise UsageError(f"{where} is nested too deeply; it cannot be read") from e


def parse_filter(text: str, where: str) -> Any:
    """A filter: JSON, or an expression such as `amount > 10`."""
    return parse_json(text, where) if text.lstrip().startswith(("{", "[")) else {"expression": text}


def parse_value(text: str, where: str) -> Any:
    """A value of the command line: a number, true, null, a list or an object; anything else is text."""
    from service.ingest.yaml_loader import value_of

    with _yaml_errors(where):
        return value_of(text)


def set_property(properties: dict[str, Any], name: str, value: Any, where: str) -> None:
    """Set a property. A dot in its name leads into an object."""
    parent = properties
    *path, last = name.split(".")
    for step in path:
        parent = parent.setdefault(step, {})
        if not isinstance(parent, dict):
            raise UsageError(f"{where}: {step!r} has a value already; it cannot have parts, too")
    if last in parent:
        raise UsageError(f"{where}: {name!r} is given twice; leave one out")
    parent[last] = value


def _not_utf_8(where: str, error: UnicodeDecodeError) -> UsageError:
    return UsageError(f"{where} is not UTF-8 text: byte {error.start} cannot be read")


def _parse_yaml(text: str, path: str) -> Any:
    import yaml

    from service.ingest.yaml_loader import Loader

    with _yaml_errors(path):
        return yaml.load(text, Loader)  # a safe loader


@contextmanager
def _yaml_errors(where: str) -> Iterator[None]:
    from service.ingest.yaml_loader import NOT_YAML, yaml_problem

    try:
        yield
    except NOT_YAML as e:
        raise UsageError(f"{where} is not YAML: {yaml_problem(e)}") from e


def _parse_properties(text: str, path: str) -> dict[str, Any]:
    """`name = value` on each line; a dot in a name leads into an object."""
    properties: dict[str, Any] = {}
    for i, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        where = f"{path}, line {i}"
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{where}: {line[:60]!r} is not a property; write name = value")
        parsed = parse_value(value.strip(), where) if value.strip() else None
        set_property(properties, name.strip(), parsed, where)
    return properties
