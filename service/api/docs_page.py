"""The page at GET /docs: every operation, from its models and examples. It loads nothing from other servers."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from service import errors
from service.api.docs_requests import Shown, Walkthrough, curl, pretty
from service.api.docs_sections import Section, sections
from service.operations.groups import GROUPS
from service.operations.operation import Metadata, Operation, Request
from service.settings import ROOT

_TEMPLATE = Path(__file__).with_suffix(".html")
_FOLDERS = ("start", "how-to", "deploy", "reference", "explanation")
_GUIDES: Mapping[str, tuple[str, ...]] = {
    "Tables": (
        "start/tutorial.md",
        "how-to/rename-and-drop.md",
        "how-to/protect-rows.md",
        "reference/tables.md",
        "reference/types.md",
    ),
    "Namespaces": ("reference/tables.md",),
    "Identities": ("reference/identities.md", "how-to/protect-rows.md"),
    "Rows": (
        "how-to/load-files.md",
        "how-to/upsert.md",
        "reference/writes.md",
        "reference/queries.md",
        "reference/edits.md",
    ),
    "Ingestion": ("how-to/daily-files.md", "reference/table-files.md", "reference/ledger.md"),
    "Dynamic tables": ("how-to/dynamic-tables.md", "reference/dynamic-tables.md"),
    "History and recovery": ("how-to/fix-a-bad-change.md", "how-to/time-travel.md", "reference/history.md"),
    "Maintenance": (
        "how-to/nightly-compaction.md",
        "how-to/repartition.md",
        "reference/maintenance.md",
        "explanation/compaction.md",
    ),
    "Schedules and jobs": ("how-to/nightly-compaction.md", "reference/maintenance.md", "reference/jobs.md"),
}
# Fields that many operations have; those of an operation alone are shown before them.
_LAST = (
    *("scope", "limit", "cursor", "partition_filter", "plan_token", "dry_run", "async", "confirm"),
    *("create_backup", "backup_retention_hours", "idempotency_key"),
)
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
    rows = _rows(operation.request.model_json_schema(), set(Request.model_fields) - own)
    return sorted(rows, key=lambda row: _LAST.index(row.name) if row.name in _LAST else -1)


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
        rows = sorted(
            _rows(schema, set()), key=lambda row: (row.name.startswith("metadata"), row.name == "next_cursor")
        )
        found.append((model.when, [row for row in rows if row.name not in shared]))
    return found


def error_classes() -> list[type[errors.FirnError]]:
    """Every error that a caller can see, in the order of the tree."""

    def below(kind: type[errors.FirnError]) -> Iterator[type[errors.FirnError]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    return [kind for kind in below(errors.FirnError) if kind.__module__ == errors.__name__]


def page(operations: list[Operation]) -> str:
    """The whole page as HTML; a browser has nothing else to fetch."""
    walk, known = Walkthrough(), {operation.name: operation for operation in operations}
    groups = {title: [known[name] for name in names if name in known] for title, names in GROUPS.items()}
    others = sections()
    links = {title: [(o.name, o.name) for o in group] for title, group in groups.items()}
    links["More ways to send requests"] = [(other.id, other.title) for other in others]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        style=_part("css"),
        script=_part("js"),
        links="".join(_links(title, targets) for title, targets in links.items() if targets),
        common=_table(common_rows(), needed=True),
        operations="".join(_group(title, group, walk) for title, group in groups.items() if group)
        + '<h2 class="group">More ways to send requests</h2>'
        + "".join(map(_other, others)),
        errors="".join(_error(kind) for kind in error_classes()),
        guides=_guides(),
    )


def content_security_policy() -> str:
    """What the page may do: run its own script, and send requests to the service that it came from."""
    hashes = {kind: f"'sha256-{b64encode(sha256(_part(kind).encode()).digest()).decode()}'" for kind in ("css", "js")}
    return (
        f"default-src 'none'; style-src {hashes['css']}; script-src {hashes['js']}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def guides() -> dict[str, Path]:
    """The guides that are installed with the service, by their paths in the documentation."""
    return {
        f"{folder}/{path.name}": path for folder in _FOLDERS for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    }


@cache
def _part(kind: str) -> str:
    return Path(__file__).with_suffix(f".{kind}").read_text(encoding="utf-8")


def _links(title: str, targets: list[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="#{id}">{text}</a></li>' for id, text in targets)
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _group(title: str, operations: list[Operation], walk: Walkthrough) -> str:
    body = "".join(_section(operation, walk) for operation in operations)
    return f'<h2 class="group">{title}</h2>{_guide_links(_GUIDES[title])}{body}'


def _section(operation: Operation, walk: Walkthrough) -> str:
    examples = "".join(_example(first, example) for first, example in walk.examples(operation))
    summary = f"{operation.summary} It needs the role {operation.role}."
    responses = "".join(f"<p>{_text(when)}:</p>{_table(rows, needed=False)}" for when, rows in result_rows(operation))
    return (
        f'<section id="{operation.name}"><h2>{operation.name}</h2><p>{_text(summary)}</p>'
        f"<h3>Fields</h3>{_table(request_rows(operation), needed=True)}"
        f"<h3>Response</h3>{responses}{examples}</section>"
    )


def _other(section: Section) -> str:
    first = [shown for shown in section.requests if shown.answer is None]
    examples = [shown for shown in section.requests if shown.answer is not None]
    shown = "".join(_example(first if i == 0 else [], example) for i, example in enumerate(examples))
    return (
        f'<section id="{section.id}"><h2>{section.title}</h2><p>{_text(section.text)}</p>'
        f"{_guide_links(section.guides)}{shown}</section>"
    )


def _guide_links(names: Iterable[str]) -> str:
    known = guides()
    links = [f'<a href="/docs/{name}">{_title(known[name])}</a>' for name in names if name in known]
    return f'<p class="guides">Guides: {", ".join(links)}</p>' if links else ""


def _guides() -> str:
    """The list of all guides, if they are installed."""
    rows = "".join(f'<li><a href="/docs/{name}">{_title(path)}</a></li>' for name, path in guides().items())
    listed = f"<ul>{rows}</ul>" if rows else "<p>The guides are in the folder <code>docs</code> of the source.</p>"
    return f'<section id="guides"><h2>Guides</h2>{listed}</section>'


def _title(guide: Path) -> str:
    with guide.open(encoding="utf-8") as file:
        return escape(file.readline().removeprefix("#").strip())


def _example(first: list[Shown], example: Shown) -> str:
    before = "".join(f"<details><summary>{escape(shown.title)}</summary>{_request(shown)}</details>" for shown in first)
    note = f"<p>{escape(example.note)}</p>" if example.note else ""
    text = example.answer if isinstance(example.answer, str) else pretty(example.answer)
    answer = escape(text).replace("&quot;&lt;any&gt;&quot;", "<i>…</i>")
    return (
        f"<details open><summary>{escape(example.title)}</summary>{before}{_request(example)}{note}"
        f'<pre class="answer" tabindex="0"><code>{answer}</code></pre></details>'
    )


def _request(shown: Shown) -> str:
    data = {
        "method": shown.method,
        "path": shown.path,
        "headers": json.dumps(shown.headers),
        "body": shown.body,
        "needs": " ".join(shown.needs),
        "keeps": json.dumps(shown.keeps),
        "status": str(shown.status),
    }
    values = " ".join(f'data-{name}="{escape(value)}"' for name, value in data.items())
    edit = '<button type="button" data-do="edit">Edit</button>' if shown.body else ""
    return (
        f'<div class="request" id="{shown.id}" {values}>'
        f'<pre tabindex="0"><code>{escape(curl(shown), quote=False)}</code></pre><div class="bar scripted" hidden>'
        f'<button type="button" data-do="send">Send</button>{edit}<button type="button" data-do="copy">Copy</button>'
        "</div></div>"
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
            text = json.dumps(field)
            listed = "[]" if "array" in text else ".*" if '"additionalProperties": {"$ref"' in text else ""
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
