"""Writes the Postman collection and its environments: `python -m postman.generate`, or `make postman`.

A session from health to compaction, then a folder for each group of operations with their examples. Each response is
compared with the approved one.
"""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from handlers import discover
from postman.session import TABLE, session
from service.api.events import HEALTHY
from service.operations.examples import of_tenant
from service.operations.groups import GROUPS
from service.operations.operation import Example, Operation

HERE = Path(__file__).parent
COLLECTION = "S3_ACID_Database.postman_collection.json"
SCHEMA = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
ENVIRONMENTS = {
    "Development": ("http://localhost:8080", "demo"),
    "Staging": ("https://firn.staging.example.com", "demo-staging"),
    "Production": ("https://firn.example.com", "demo-production"),
}
# The examples have a tenant of their own, new in each run, because they expect that their tables do not exist.
EXAMPLES_TENANT = "examples-{{run}}"
ANY = "<any>"

Json = dict[str, Any]


def files() -> dict[Path, str]:
    """Every file that this writes, with its content."""
    contents = {HERE / COLLECTION: collection()}
    for name, (base_url, tenant) in ENVIRONMENTS.items():
        contents[HERE / "environments" / f"{name}.postman_environment.json"] = environment(name, base_url, tenant)
    return {path: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for path, value in contents.items()}


def collection() -> Json:
    """The collection, in Postman's format v2.1."""
    steps = [_health(), *(_item(s.title, s.request, s.answer) for s in session())]
    return {
        "info": {
            "_postman_id": _id("collection"),
            "name": "Firn",
            "description": "JSON requests over Apache Iceberg tables. Choose an environment and run the collection "
            "from the top: the first request names the tables of the run, so it can be run again and again.",
            "schema": SCHEMA,
        },
        "item": [
            {"name": "A session", "item": steps},
            *(_group(title, names) for title, names in GROUPS.items()),
        ],
        "auth": {
            "type": "apikey",
            "apikey": [
                {"key": "key", "value": "X-Api-Key", "type": "string"},
                {"key": "value", "value": "{{api_key}}", "type": "string"},
                {"key": "in", "value": "header", "type": "string"},
            ],
        },
        "event": [_script("prerequest", _NAME_THE_RUN.format(new="if (!pm.collectionVariables.get('run')) "))],
        "variable": [
            {"key": key, "value": value}
            for key, value in (
                ("base_url", "http://localhost:8080"),
                ("api_key", ""),
                ("tenant_id", "demo"),
                ("namespace", "default"),
                ("run", ""),
                ("table", ""),
            )
        ],
    }


def environment(name: str, base_url: str, tenant: str) -> Json:
    values = {"base_url": base_url, "tenant_id": tenant, "namespace": "default"}
    secret = {"key": "api_key", "value": "", "type": "secret", "enabled": True}
    return {
        "id": _id(name),
        "name": f"Firn {name}",
        "values": [{"key": k, "value": v, "type": "default", "enabled": True} for k, v in values.items()] + [secret],
        "_postman_variable_scope": "environment",
    }


_NAME_THE_RUN = (
    "{new}{{\n"
    "    const run = Date.now().toString(36) + Math.floor(Math.random() * 1296).toString(36);\n"
    "    pm.collectionVariables.set('run', run);\n"
    "    pm.collectionVariables.set('table', 'users_' + run);\n"
    "}}"
)


def _health() -> Json:
    tests = [_status(), *_compare(HEALTHY, "")]
    return {
        "name": "Health",
        "event": [_script("prerequest", _NAME_THE_RUN.format(new="")), _script("test", "\n".join([_READ, *tests]))],
        "request": {
            "method": "GET",
            "header": [],
            "url": {"raw": "{{base_url}}/health", "host": ["{{base_url}}"], "path": ["health"]},
        },
        "response": [],
    }


def _group(title: str, names: Sequence[str]) -> Json:
    operations = {operation.name: operation for operation in discover()}
    return {"name": title, "item": [_folder(operations[name]) for name in names]}


def _folder(operation: Operation) -> Json:
    return {
        "name": operation.name,
        "description": operation.summary,
        "item": [item for i, e in enumerate(operation.examples) for item in _example(operation, e, i)],
    }


def _example(operation: Operation, example: Example, place: int) -> list[Json]:
    tenant = f"{EXAMPLES_TENANT}-{operation.name.lower()}-{place}"
    given = [
        _item(
            f"{example.title}: given {i}, {request['operation']}",
            of_tenant(request, tenant),
            {"success": True},
            [_keep(*source) for source in example.taken.values() if source[0] == i],
        )
        for i, request in enumerate(example.given, 1)
    ]
    taken = {name: f"{{{{{_kept(*source)}}}}}" for name, source in example.taken.items()}
    request = of_tenant({**example.request, **taken}, tenant)
    return [*given, _item(example.title, request, example.answer)]


def _keep(place: int, path: str) -> str:
    """Keep a value of a response for the example that uses it."""
    return f"pm.collectionVariables.set({json.dumps(_kept(place, path))}, {_at(path)});"


def _kept(place: int, path: str) -> str:
    return f"given_{place}_{path.replace('.', '_')}"


def _item(name: str, request: Json, answer: Json, more: Sequence[str] = ()) -> Json:
    raw = json.dumps(request, indent=2, ensure_ascii=False)
    tests = [_READ, _status(_expected(request, answer)), *_compare(answer, ""), *more]
    if request["operation"] == "LIST_TABLES" and "{{tenant_id}}" in request.values():
        tests.append(
            _test(f"tables has {TABLE['table']}", "pm.expect(body.tables).to.include(pm.variables.get('table'))")
        )
    return {
        "name": name,
        "event": [_script("test", "\n".join(tests))],
        "request": {
            "method": "POST",
            "header": [{"key": "Content-Type", "value": "application/json"}],
            "body": {
                "mode": "raw",
                "raw": raw,
                "options": {"raw": {"language": "json"}},
            },
            "url": {"raw": "{{base_url}}/database", "host": ["{{base_url}}"], "path": ["database"]},
        },
        "response": [],
    }


_READ = "const body = pm.response.json();"


def _status(status: int = 200) -> str:
    return _test(f"the status is {status}", f"pm.response.to.have.status({status})")


def _expected(request: Json, answer: Json) -> int:
    return 202 if request.get("async") or "status_url" in answer else 200


def _compare(approved: Json, path: str) -> list[str]:
    """One test for each field of an approved response. If any value is right, it only has to exist."""
    tests: list[str] = []
    for key, value in approved.items():
        name = f"{path}.{key}" if path else key
        if value == ANY:
            tests.append(_test(f"{name} is there", f"pm.expect({_at(path)}).to.have.property({json.dumps(key)})"))
        elif isinstance(value, dict) and ANY in json.dumps(value):
            tests += _compare(value, name)
        elif isinstance(value, list) and ANY in json.dumps(value):
            tests.append(_test(f"{name} has {len(value)}", f"pm.expect({_at(name)}).to.have.lengthOf({len(value)})"))
            tests += _compare({str(i): item for i, item in enumerate(value)}, name)
        else:
            shown = json.dumps(value, ensure_ascii=False)
            title = f"{name} is {shown}" if len(shown) <= 60 else f"{name} is as approved"
            tests.append(_test(title, f"pm.expect({_at(name)}).to.eql({shown})"))
    return tests


def _at(path: str) -> str:
    return "body" + "".join(f"[{json.dumps(step)}]" for step in path.split(".") if step)


def _test(title: str, assertion: str) -> str:
    return f"pm.test({json.dumps(title, ensure_ascii=False)}, () => {assertion});"


def _script(listen: str, text: str) -> Json:
    return {"listen": listen, "script": {"type": "text/javascript", "exec": text.split("\n")}}


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"firn/postman/{name}"))


def main() -> None:
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
