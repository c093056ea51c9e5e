"""The page at GET /docs: every operation, from its models and examples. It loads nothing from other servers."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from service import errors
from service.operations.operation import Example, Metadata, Operation, Request

_TEMPLATE = Path(__file__).with_suffix(".html")
_URL = "http://localhost:8080"
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class FieldRow:
    """A field as a table shows it; `default` is None if the field is required."""

    name: str
    kind: str
    default: str | None
    description: str


def request_rows(operation: Operation) -> list[FieldRow]:
    """The fields of a request, nested ones with dots, without those of every request."""
    # Every operation accepts `confirm`; the documentation has it where it does something.
    own = {"confirm"} & operation.request.__annotations__.keys()
    return list(_rows(operation.request.model_json_schema(), set(Request.model_fields) - own))


def common_rows() -> list[FieldRow]:
    """The fields of every request that do something in all of them."""
    return list(_rows(Request.model_json_schema(), {"confirm"}))


def result_rows(operation: Operation) -> list[tuple[str, list[FieldRow]]]:
    """For each response that the operation can give, when it is given, and its fields without `success` and the
    metadata that every response has."""
    shared = {"success", "metadata", *(f"metadata.{name}" for name in Metadata.model_fields)}
    found = []
    for model in (operation.result, *operation.also):
        schema = model.model_json_schema(mode="serialization")
        rows = sorted(_rows(schema, set()), key=lambda row: row.name.startswith("metadata"))
        found.append((model.when, [row for row in rows if row.name not in shared]))
    return found


def curl(example: Example, url: str = _URL) -> str:
    """The command that sends an example."""
    return f"curl -s {url}/database -d {shlex.quote(pretty(example.request))}"


def pretty(value: Any, indent: str = "") -> str:
    """JSON for people: what fits in one line is on one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 84 or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [f"{deeper}{json.dumps(k, ensure_ascii=False)}: {pretty(v, deeper)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{deeper}{pretty(item, deeper)}" for item in value) + f"\n{indent}]"


def error_classes() -> list[type[errors.FirnError]]:
    """Every error that a caller can see, in the order of the tree."""

    def below(kind: type[errors.FirnError]) -> Iterator[type[errors.FirnError]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    return [kind for kind in below(errors.FirnError) if kind.__module__ == errors.__name__]


def page(operations: list[Operation]) -> str:
    """The whole page as HTML; a browser has nothing else to fetch."""
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        links="".join(f'<li><a href="#{o.name}">{o.name}</a></li>' for o in operations),
        common=_table(common_rows(), needed=True),
        operations="".join(_section(o) for o in operations),
        errors="".join(_error(kind) for kind in error_classes()),
    )


def _section(operation: Operation) -> str:
    examples = "".join(_example(e, operation.name, i) for i, e in enumerate(operation.examples, 1))
    responses = "".join(f"<p>{_text(when)}:</p>{_table(rows, needed=False)}" for when, rows in result_rows(operation))
    return (
        f'<section id="{operation.name}"><h2>{operation.name}</h2><p>{_text(operation.summary)}</p>'
        f"<h3>Fields</h3>{_table(request_rows(operation), needed=True)}"
        f"<h3>Response</h3>{responses}{examples}</section>"
    )


def _example(example: Example, name: str, number: int) -> str:
    shown = escape(pretty(example.answer)).replace("&quot;&lt;any&gt;&quot;", "<i>…</i>")
    return (
        f"<details{' open' if number == 1 else ''}><summary>{escape(example.title)}</summary>"
        f'<div class="code"><button type="button" data-for="{name}-{number}">Copy</button>'
        f'<pre id="{name}-{number}" tabindex="0"><code>{escape(curl(example), quote=False)}</code></pre></div>'
        f'<pre class="answer" tabindex="0"><code>{shown}</code></pre></details>'
    )


def _table(rows: list[FieldRow], *, needed: bool) -> str:
    if not rows:
        return "<p>None of its own.</p>"
    body = "".join(
        f"<tr><td><code>{escape(row.name)}</code></td><td>{escape(row.kind)}</td>"
        + (f'<td class="default">{_default(row.default)}</td>' if needed else "")
        + f"<td>{_text(row.description)}</td></tr>"
        for row in rows
    )
    head = "<th>field</th><th>type</th>" + ("<th>default</th>" if needed else "") + "<th></th>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _default(default: str | None) -> str:
    return '<b class="needed">required</b>' if default is None else f"<code>{escape(default)}</code>" * bool(default)


def _error(kind: type[errors.FirnError]) -> str:
    again = "retryable" if kind.retryable else ""
    return f"<tr><td><code>{kind.code}</code></td><td>{kind.status}</td><td>{again}</td></tr>"


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _rows(schema: dict[str, Any], skip: set[str]) -> Iterator[FieldRow]:
    yield from _object(schema, "", schema.get("$defs", {}), {}, skip)


def _object(
    schema: dict[str, Any], prefix: str, defs: dict[str, Any], seen: dict[str, str], skip: set[str]
) -> Iterator[FieldRow]:
    for name, field in schema.get("properties", {}).items():
        if name in skip:
            continue
        path, inside = prefix + name, _inside(field)
        kind = _kind(field)
        if inside in seen:
            kind += f", as in {seen[inside]}"
        needed = name in schema.get("required", ()) and "default" not in field
        yield FieldRow(path, kind, None if needed else _shown(field.get("default")), field.get("description", ""))
        if inside and inside not in seen:
            seen[inside] = path
            listed = "[]" if "array" in json.dumps(field) else ""
            yield from _object(defs[inside], f"{path}{listed}.", defs, seen, set())


def _inside(field: Any) -> str:
    """The name of the model of a field, or of the items of its list."""
    found = re.search(r'"#/\$defs/(\w+)"', json.dumps({k: v for k, v in field.items() if k != "default"}))
    return found[1] if found else ""


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        parts = [_kind(part) for part in field["anyOf"] if part.get("type") != "null"]
        # A request's field that may be null is optional; a response's has no default, and may be null.
        nullable = len(parts) < len(field["anyOf"]) and "default" not in field
        return (", or " if "list" in parts[0] else " or ").join([*parts, "null"] if nullable else parts)
    if "const" in field or "enum" in field:
        values = field.get("enum", [field.get("const")])
        return ", ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    if field.get("type") == "array":
        items = field.get("items") or {}
        kinds = [_kind(part) for part in items.get("anyOf", [items])]
        return "list" if kinds == ["any"] else f"list of {' or '.join(f'{kind}s' for kind in kinds)}"
    kind = "object" if "$ref" in field else str(field.get("type", "any"))
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None:
        kind += f", {low:,} to {high:,}" if high is not None else f" from {low:,}"
    return kind


def _shown(default: Any) -> str:
    return "" if default is None or isinstance(default, dict | list) else json.dumps(default)
