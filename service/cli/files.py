"""Files that commands are given: YAML, JSON, properties, and a table in one of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.cli.command import Args, Misused
from service.cli.values import hint, tenant_of

_YAML, _JSON, _PROPERTIES = (".yaml", ".yml"), (".json",), (".properties",)
TABLE_KEYS = ("tenant", "namespace", "table", "schema", "partition", "properties", "split_points")
_ADDRESS = ("tenant", "namespace", "table")
_OBJECTS = ("schema", "partition", "properties")


def table_of(args: Args) -> dict[str, Any]:
    """The table that a command is about: a name, or a file that says more. What the command line says comes first."""
    given: str = args.table
    said = read_table(given) if is_file(given) else {"table": given}
    table = {
        "tenant_id": args.tenant or said.get("tenant") or tenant_of(args),
        "namespace": args.namespace or said.get("namespace") or "default",
        "table": said["table"],
    }
    return {**table, **{key: value for key, value in said.items() if key not in _ADDRESS}}


def address(args: Args) -> dict[str, Any]:
    """The table's address alone."""
    said = table_of(args)
    return {key: said[key] for key in ("tenant_id", "namespace", "table")}


def is_file(given: str) -> bool:
    """A table's name has no dot."""
    return Path(given).suffix in _YAML + _JSON


def read_table(path: str) -> dict[str, Any]:
    """A table's file: its name, and what CREATE_TABLE takes."""
    value = read(path)
    unknown = next((key for key in value if key not in TABLE_KEYS), None)
    if unknown is not None:
        raise Misused(f"{path}: {unknown!r} is not known of a table; {hint(str(unknown), TABLE_KEYS)}")
    if not isinstance(value.get("table"), str):
        raise Misused(f"{path}: table is missing; give the table's name")
    for key in _ADDRESS:
        if key in value and not isinstance(value[key], str):
            raise Misused(f"{path}: {key} must be text, not {value[key]!r}; put it in quotes")
    for key in _OBJECTS:
        if key in value and not isinstance(value[key], dict):
            raise Misused(f"{path}: {key} must be an object, not {value[key]!r}")
    return value


def read_schema(path: str) -> Any:
    """A schema's file holds it alone, or a table's file has it in it."""
    value = read(path)
    return value["schema"] if "schema" in value and "fields" not in value else value


def read(path: str) -> dict[str, Any]:
    """The object that a YAML, JSON or properties file holds."""
    kind = Path(path).suffix
    text = read_text(path)
    if kind in _PROPERTIES:
        return _properties(text, path)
    value = _parsed(text, path, is_json=kind in _JSON)
    if not isinstance(value, dict):
        raise Misused(f"{path} must hold one object, not {type(value).__name__}")
    return value


def read_text(path: str) -> str:
    try:
        with _as_text(path):
            return Path(path).read_text(encoding="utf-8-sig")
    except OSError as e:
        raise Misused(f"{path} cannot be read ({e.strerror}); check the path") from e


def text_of(written: bytes, where: str) -> str:
    """What stands on a stream, whatever the locale takes it for."""
    with _as_text(where):
        return written.decode("utf-8-sig")


def from_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise Misused(f"{where} is not JSON: {e}") from e
    except RecursionError as e:
        raise Misused(f"{where} is nested too deeply; it cannot be read") from e


def scalar(text: str, where: str) -> Any:
    """A value of the command line: a number, true, a list, and what is none of these as the text it is."""
    from service.cli.yaml_loader import value_of

    with _as_yaml(where):
        return value_of(text)


def put(properties: dict[str, Any], name: str, value: Any, where: str) -> None:
    """A property in its place: a dot in its name leads into an object."""
    place = properties
    *parents, last = name.split(".")
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise Misused(f"{where}: {parent!r} has a value already; it cannot have parts, too")
    if last in place:
        raise Misused(f"{where}: {name!r} stands there twice; leave one out")
    place[last] = value


def _parsed(text: str, path: str, *, is_json: bool) -> Any:
    if is_json:
        return from_json(text, path)
    import yaml

    from service.cli.yaml_loader import Loader

    with _as_yaml(path):
        return yaml.load(text, Loader)  # a safe one, with less than the safe one has


@contextmanager
def _as_text(where: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as e:
        raise Misused(f"{where} is not UTF-8 text: byte {e.start} cannot be read") from e


@contextmanager
def _as_yaml(where: str) -> Iterator[None]:
    import yaml

    try:
        yield
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as e:
        problem = " ".join(str(e).split())
        raise Misused(f"{where} is not YAML: {problem}") from e


def _properties(text: str, path: str) -> dict[str, Any]:
    """`name = value` on each line; a dot in a name leads into an object."""
    found: dict[str, Any] = {}
    for i, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Misused(f"{path}, line {i}: {line[:60]!r} is no property; write name = value")
        where = f"{path}, line {i}"
        put(found, name.strip(), scalar(value.strip(), where), where)
    return found
