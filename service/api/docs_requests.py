"""The requests of the page at GET /docs, such that all of them succeed from top to bottom in a new tenant.

An example names what must exist before it. Examples that agree about it share it, if none of them changed it;
otherwise the next one gets tables, namespaces and schedules whose names are new to the page.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.operations.examples import exporting_to
from service.operations.operation import Example, KeyedRequest, Operation

URL = "http://localhost:8080"
TENANT = "acme"
ADDRESSES = ("table", "new_name", "target_table")
_VARIABLE = re.compile(r"\$([A-Z]+_\d+)")
Json = dict[str, Any]


@dataclass
class Shown:
    """A request of the page: what to send, what to send before it, and which values of its response others use."""

    id: str
    title: str
    body: str = ""
    method: str = "POST"
    path: str = "/database"
    headers: dict[str, str] = field(default_factory=dict)
    answer: Any = None
    """The approved response; None if the page does not show it. Text is shown as it is."""
    needs: list[str] = field(default_factory=list)
    keeps: dict[str, str] = field(default_factory=dict)
    """The names under which values of the response are kept, and their paths in it."""
    status: int = 200
    """The status of an error that the request is there to show."""
    note: str = ""


def curl(shown: Shown, url: str = URL) -> str:
    """The command that sends a request. Values of earlier responses are shell variables."""
    parts = [f"curl -s {_quoted(url + shown.path)}"]
    parts += [f"-X {shown.method}"] if shown.method != ("POST" if shown.body else "GET") else []
    parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in shown.headers.items()]
    parts += [f"{'-d' if shown.path == '/database' else '--data-binary'} {_quoted(shown.body)}"] if shown.body else []
    command = " ".join(parts)
    if not shown.keeps:
        return command
    kept = [
        f"""{name}=$(sed -E 's/.*"{path.split(".")[-1]}": *"([^"]*)".*/\\1/' response.json)"""
        for name, path in shown.keeps.items()
    ]
    return "\n".join([f"{command} | tee response.json", *kept])


def _quoted(text: str) -> str:
    """The text as one argument in which variables have their values."""
    quoted = text if re.fullmatch(r"[\w/:.]*", text) else shlex.quote(text)
    return _VARIABLE.sub(r"'" r'"$\1"' "'", quoted) if quoted.startswith("'") else quoted


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


class Walkthrough:
    """Makes the requests of one page, in its order."""

    def __init__(self) -> None:
        self._used: set[tuple[str, ...]] = set()
        self._names: dict[tuple[str, ...], str] = {}
        self._sent: list[tuple[Json, Shown]] = []
        self._variables = 0

    def examples(self, operation: Operation) -> list[tuple[list[Shown], Shown]]:
        """Each example with the requests to send first that are not on the page yet."""
        self._sent = []
        return [self._example(operation, example, i) for i, example in enumerate(operation.examples, 1)]

    def _example(self, operation: Operation, example: Example, number: int) -> tuple[list[Shown], Shown]:
        shared = [request for request, _ in self._sent]
        if not shared or list(example.given[: len(shared)]) != shared:
            self._sent, self._names = [], {}
        self._rename([*example.given, example.request])
        name = f"{operation.name}-{number}"
        first = []
        for place, request in enumerate(example.given[len(self._sent) :], len(self._sent) + 1):
            title = f"First: {request['operation']}"
            shown = Shown(f"{name}-first-{place}", title, self._body(request), needs=self._needs())
            self._sent.append((request, shown))
            first.append(shown)
        taken = {key: self._keep(place, path, operation) for key, (place, path) in example.taken.items()}
        body = self._body({**example.request, **taken})
        answer = renamed(example.answer, {old[-1]: new for old, new in self._names.items() if old[-1] != new})
        shown = Shown(name, example.title, body, answer=answer, needs=self._needs(), note=_note(operation, example))
        if issubclass(operation.request, KeyedRequest) and not _is_preview(example.request):
            self._sent.append((example.request, shown))
        return first, shown

    def _needs(self) -> list[str]:
        return [shown.id for _, shown in self._sent]

    def _keep(self, place: int, path: str, operation: Operation) -> str:
        """What stands in a request for a value of an earlier response."""
        source = self._sent[place - 1][1]
        if path == "metadata.request_id":  # clients may choose it
            request = json.loads(source.body)
            return source.headers.setdefault("X-Request-Id", f"{request['operation'].lower()}-{request['table']}")
        for name, kept in source.keeps.items():
            if kept == path:
                return f"${name}"
        self._variables += 1
        name = f"{path.split('.')[-1].removesuffix('_id').replace('_', '').upper()}_{self._variables}"
        source.keeps[name] = path
        return f"${name}"

    def _rename(self, requests: list[Json]) -> None:
        """Find names for what these requests are about: those they have, unless the page used them."""
        for request in requests:
            namespace = request.get("namespace")
            if namespace and "table" not in request:
                self._find(("namespace", namespace))
        for request in requests:
            namespace = self._namespace(request.get("namespace", "default"))
            for key in ADDRESSES:
                if isinstance(request.get(key), str):
                    self._find((namespace, request[key]))
            if "SCHEDULE" in request["operation"] and "name" in request:
                self._find(("schedule", "", request["name"]))
        self._used |= {("namespace", self._namespace(r["namespace"])) for r in requests if "namespace" in r}

    def _find(self, known: tuple[str, ...]) -> None:
        if known in self._names:
            return
        number, name = 1, known[-1]
        while (*known[:-1], name) in self._used:
            number += 1
            name = f"{known[-1]}_{number}"
        self._names[known] = name
        self._used.add((*known[:-1], name))

    def _namespace(self, name: str) -> str:
        return self._names.get(("namespace", name), name)

    def _body(self, request: Json) -> str:
        namespace = self._namespace(request.get("namespace", "default"))
        changed = exporting_to(request, namespace)
        if "namespace" in request:
            changed["namespace"] = namespace
        for key in ADDRESSES:
            if isinstance(request.get(key), str):
                changed[key] = self._names[(namespace, request[key])]
        if "SCHEDULE" in request["operation"] and "name" in request:
            changed["name"] = self._names[("schedule", "", request["name"])]
        if "sql" in request:
            for known, name in self._names.items():
                if known[0] == namespace:
                    changed["sql"] = re.sub(rf"\b{known[-1]}\b", name, changed["sql"])
        return pretty(changed)


def renamed(answer: Any, names: Mapping[str, str]) -> Any:
    """A response with new names in it; rows stay as they are."""
    if isinstance(answer, dict):
        return {k: v if k in ("data", "sample") else renamed(v, names) for k, v in answer.items()}
    if isinstance(answer, list):
        return [renamed(item, names) for item in answer]
    return names.get(answer, answer) if isinstance(answer, str) else answer


def _is_preview(request: Json) -> bool:
    return bool(request.get("dry_run") or request.get("estimate"))


def _note(operation: Operation, example: Example) -> str:
    """What to say about a response that depends on what else the tenant has."""
    about_all = "table" not in example.request and "namespace" not in example.request
    changes = issubclass(operation.request, KeyedRequest)
    if not about_all or (changes and example.given) or example.request.get("if_exists"):
        return ""
    return "This is about the whole tenant: if it has more than this example needs, the response has more, too."
