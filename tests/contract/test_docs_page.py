"""The page at /docs: what it shows, taken off the page as it is served, does what it shows."""

import json
import re
import subprocess
from html.parser import HTMLParser
from typing import Any

import pytest

from service.model import wire
from tests.contract.openapi import ANY, problems
from tests.contract.test_examples import differences
from tests.harness import Firn

URL = "http://localhost:8080"
MARK = "----- "
TENANT = "docs-page"
VARIABLE = re.compile(r"\$[A-Z]+_\d+")


class Requests(HTMLParser):
    """The requests of the page: the id, the command, and what the page says about the response."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._to = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("class") == "request":
            data = {name.removeprefix("data-"): value or "" for name, value in attrs}
            self.found.append({**data, "command": "", "answer": "", "note": ""})
            self._to = "command"
        elif tag == "pre" and given.get("class") == "answer":
            self._to = "answer"
        elif tag == "p" and self._to == "after":
            self._to = "note"
        elif tag == "i" and self._to == "answer":
            self.found[-1]["answer"] += json.dumps(ANY)
            self._to = "any"

    def handle_endtag(self, tag: str) -> None:
        if tag == "i" and self._to == "any":
            self._to = "answer"
        elif tag in ("pre", "p") and self._to:
            self._to = "after"

    def handle_data(self, data: str) -> None:
        if self._to in ("command", "answer", "note"):
            self.found[-1][self._to] += data


Ran = list[tuple[dict[str, str], str]]


@pytest.fixture(scope="module")
def ran(firn: Firn, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Every request of the page with its output, sent from top to bottom under a new tenant.

    In one shell: values that the page takes from a response are its variables.
    """
    reader = Requests()
    reader.feed(firn.client.get("/docs").text)
    script = "\n".join(f"echo; echo '{MARK}{each['id']}'\n{each['command']}" for each in reader.found)
    script = re.sub(r"\bacme\b", TENANT, script.replace(URL, firn.base_url))
    folder = tmp_path_factory.mktemp("shell")
    done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, cwd=folder, timeout=400)
    assert done.returncode == 0, done.stderr
    outputs = dict(part.split("\n", 1) for part in ("\n" + done.stdout).split(f"\n{MARK}")[1:])
    assert list(outputs) == [each["id"] for each in reader.found]
    return [(each, outputs[each["id"]]) for each in reader.found]


@pytest.mark.thorough
def test_every_request_of_the_page_does_what_it_shows(ran: Ran) -> None:
    assert len([each for each, _ in ran if each["answer"]]) > 75
    assert {each["id"]: wrong for each, output in ran if (wrong := unlike(each, output))} == {}


@pytest.mark.thorough
def test_every_request_of_the_page_and_its_response_are_as_the_openapi_document_describes_them(
    firn: Firn, ran: Ran
) -> None:
    """A client that is made from the document alone sends and reads the same."""
    document = firn.parsed(firn.client.get("/openapi.json"))
    routes = {re.sub(r"\{\w+\}", "[^/]+", path): path for path in document["paths"]}
    used, wrong = set(), {}
    for each, output in ran:
        path = each["path"].partition("?")[0]
        [template] = [template for pattern, template in routes.items() if re.fullmatch(pattern, path)]
        method = document["paths"][template][each["method"].lower()]
        used.add((template, each["method"]))
        found = []
        if "requestBody" in method and each["body"].startswith("{"):
            content = method["requestBody"]["content"]
            kind = json.loads(each["headers"]).get("Content-Type", "application/json")
            if kind == "application/json":
                found = problems(wire.parse(VARIABLE.sub("1", each["body"])), content[kind]["schema"], document)
            assert kind in content
        if not each["answer"] or each["answer"].startswith("{"):
            found += unfitting(wire.parse(output), each["status"], method["responses"], document)
        if found:
            wrong[each["id"]] = found
    assert wrong == {}
    operations = document["paths"]["/database"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {json.loads(each["body"])["operation"] for each, _ in ran if each["path"] == "/database"} == set(
        operations["discriminator"]["mapping"]
    )
    unused = {(path, m.upper()) for path, methods in document["paths"].items() for m in methods} - used
    upload = "/tables/{tenant}/{namespace}/{table}/ingest"  # as of records, with the name of a file
    assert {path for path, _ in unused} == {"/health", "/ready", "/metrics", upload}


def unfitting(got: Any, status: str, responses: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """What keeps a response from each of those that the document has for its status; 2xx if the page names no error."""
    statuses = [status] if status != "200" else [known for known in responses if known.startswith("2")]
    found = [problems(got, responses[s]["content"]["application/json"]["schema"], document) for s in statuses]
    return [] if any(not each for each in found) else [line for each in found for line in each]


def unlike(shown: dict[str, str], output: str) -> list[str]:
    """Where an output is not what the page shows; a request without a response on the page succeeds."""
    answer = re.sub(r"\bacme\b", TENANT, shown["answer"])
    if answer and not answer.startswith("{"):
        return [] if output.split() == answer.split() else [output]
    got: Any = json.loads(output)
    if not answer or "the whole tenant" in shown["note"]:
        return [] if got["success"] is True else [output]
    return differences(json.loads(answer), got)
