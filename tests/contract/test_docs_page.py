"""The page at /docs: what it shows, taken off the page as it is served, does what it shows."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.contract.openapi import ANY
from tests.contract.test_examples import differences
from tests.harness import Firn

URL = "http://localhost:8080"
MARK = "----- "


class Requests(HTMLParser):
    """The requests of the page: the id, the command, and what the page says about the response."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._to = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("class") == "request":
            self.found.append({"id": given["id"] or "", "command": "", "answer": "", "note": ""})
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


def test_every_request_of_the_page_runs_from_top_to_bottom_under_a_new_tenant(
    firn: Firn, tenant: str, tmp_path: Path
) -> None:
    """In one shell: values that the page takes from a response are its variables."""
    reader = Requests()
    reader.feed(firn.client.get("/docs").text)
    script = "\n".join(f"echo; echo '{MARK}{each['id']}'\n{each['command']}" for each in reader.found)
    script = re.sub(r"\bacme\b", tenant, script.replace(URL, firn.base_url))
    done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stderr
    outputs = dict(part.split("\n", 1) for part in ("\n" + done.stdout).split(f"\n{MARK}")[1:])
    assert list(outputs) == [each["id"] for each in reader.found]
    assert len([each for each in reader.found if each["answer"]]) > 75
    problems = {each["id"]: wrong for each in reader.found if (wrong := unlike(each, outputs[each["id"]], tenant))}
    assert problems == {}


def unlike(shown: dict[str, str], output: str, tenant: str) -> list[str]:
    """Where an output is not what the page shows; a request without a response on the page succeeds."""
    answer = re.sub(r"\bacme\b", tenant, shown["answer"])
    if answer and not answer.startswith("{"):
        return [] if output.split() == answer.split() else [output]
    got: Any = json.loads(output)
    if not answer or "the whole tenant" in shown["note"]:
        return [] if got["success"] is True else [output]
    return differences(json.loads(answer), got)
