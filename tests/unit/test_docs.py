"""Nothing that the code has is missing from the documents, and nothing in them is out of date."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import table_files
from docs.generate import (
    generated_cli,
    generated_expressions,
    generated_readme,
    generated_table_files,
    operation_pages,
    parts_of,
)
from handlers import discover
from service.api.docs_page import content_security_policy, error_classes, guides, page, request_rows, result_rows
from service.api.docs_requests import pretty
from service.cli.catalogue import COMMANDS
from service.model.expressions.functions import FUNCTIONS
from service.model.filters.conditions import OPERATORS
from service.model.ingest.dataset import Dataset
from service.model.ingest.table_file import TableFile
from service.operations.groups import GROUPS
from service.operations.operation import Example, Operation, Request
from service.operations.paging import Paged
from service.settings import NOT_SETTINGS, ROOT, load, variables

OPERATIONS = {operation.name: operation for operation in discover()}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| `([A-Z_]+)` \|(.*)$", re.MULTILINE)


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_generated_parts_are_up_to_date() -> None:
    for path, text in operation_pages(list(OPERATIONS.values())).items():
        assert path.read_text() == text, "run `python -m docs.generate`"


def test_the_tables_of_functions_are_up_to_date() -> None:
    text = read("docs/reference/expressions.md")
    assert generated_expressions(text) == text, "run `python -m docs.generate`"
    rows = re.findall(r"^\| `([a-z0-9_]+)\(", text, re.MULTILINE)
    assert rows == list(FUNCTIONS)


def test_the_commands_are_up_to_date() -> None:
    text = read("docs/reference/cli.md")
    assert generated_cli(text) == text, "run `python -m docs.generate`"
    assert set(re.findall(r"^### firn (.+)$", text, re.MULTILINE)) == {command.name for command in COMMANDS}


def test_every_key_of_a_table_file_and_of_a_dataset_file_is_documented() -> None:
    text = read("docs/reference/table-files.md")
    assert generated_table_files(text) == text, "run `python -m docs.generate`"
    assert parts_of(text) == list(table_files.parts())
    for model in (TableFile, Dataset):
        for path, info in table_files.keys(model):
            assert f"| `{path}` |" in text
            assert info.description, f"{path} has no meaning"


def test_the_readme_has_the_latest_measurements_and_at_most_200_lines() -> None:
    text = read("README.md")
    assert generated_readme(text) == text, "run `python -m docs.generate`"
    assert parts_of(text) == ["benchmarks"]
    assert len(text.splitlines()) <= 200
    claims = [
        claim for part in json.loads(read("bench/results/latest.json"))["parts"].values() for claim in part["claims"]
    ]
    [commits] = [c["measured"] for c in claims if c["claim"] == "commits per 1,000 WRITEs, 256 clients"]
    assert f"about {commits:.0f} commits per 1,000 writes" in text


def test_the_picture_fetches_nothing() -> None:
    text = read("docs/images/firn.svg")
    assert not re.search(r"href|@import|url\((?!#)|<script|<image|<foreignObject", text)


def test_the_first_session_shows_examples_of_commands_that_tests_run() -> None:
    text = read("docs/first-session.md")
    [block] = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    known = {f"$ {e.line}\n{e.output}" for command in COMMANDS for e in command.examples}
    shown = [f"$ {part}" for part in block.split("$ ")[1:]]
    assert len(shown) == 3
    assert set(shown) <= known


def test_every_operation_is_in_one_group_and_in_the_navigation_of_the_site() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(OPERATIONS)
    nav = yaml.safe_load(read("mkdocs.yml"))["nav"]
    [reference] = [pages for section in nav for title, pages in section.items() if title == "Reference"]
    groups = {
        title: [*map(next, map(iter, pages))]
        for part in reference[0]["Operations"][1:]
        for title, pages in part.items()
    }
    assert groups == {title: list(names) for title, names in GROUPS.items()}


def test_every_operation_has_a_page_and_a_row_among_all_operations() -> None:
    folder = ROOT / "docs/reference/operations"
    assert parts_of(read("docs/reference/operations/index.md")) == ["groups", "every_request"]
    assert {path.stem.upper() for path in folder.glob("*.md")} - {"INDEX"} == set(OPERATIONS)
    for name in OPERATIONS:
        text = (folder / f"{name.lower()}.md").read_text()
        assert (text.partition("\n")[0], parts_of(text)) == (f"# {name}", [name])
    index = read("docs/reference/operations/index.md")
    assert set(re.findall(r"^\| \[([A-Z_]+)\]", index, re.MULTILINE)) == set(OPERATIONS)


def test_the_fields_of_an_operation_alone_come_before_those_that_many_have() -> None:
    assert [row.name for row in request_rows(OPERATIONS["WRITE"])] == [
        *("table", "records", "mode", "partition_filter", "plan_token", "dry_run"),
        *("create_backup", "backup_retention_hours", "idempotency_key"),
    ]


def test_the_page_of_lists_names_every_operation_that_pages() -> None:
    named = set(re.findall(r"^\| \[([A-Z_]+)\]", read("docs/reference/lists.md"), re.MULTILINE))
    assert named == {name for name, operation in OPERATIONS.items() if issubclass(operation.request, Paged)}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_every_field_of_an_operation_is_documented(operation: Operation) -> None:
    shown = {row.name.partition(".")[0].partition("[")[0] for row in request_rows(operation)}
    aliases = {info.alias or name for name, info in operation.request.model_fields.items()}
    assert shown - {"confirm"} == aliases - set(Request.model_fields)
    for model, (_, rows) in zip((operation.result, *operation.also), result_rows(operation), strict=True):
        results = {row.name.partition(".")[0].partition("[")[0] for row in rows} - {"metadata"}
        assert results == {i.serialization_alias or n for n, i in model.model_fields.items()} - {"metadata"}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_every_operation_has_an_example(operation: Operation) -> None:
    assert operation.examples


def test_every_error_is_documented_with_its_status_and_whether_it_is_retryable() -> None:
    documented = {}
    for code, rest in ROW.findall(read("docs/reference/errors.md")):
        status, retryable, words = (cell.strip() for cell in rest.split("|")[:3])
        assert words, f"{code} has no explanation"
        documented[code] = (int(status), retryable == "yes")
    assert documented == {kind.code: (kind.status, kind.retryable) for kind in error_classes()}


def test_every_setting_is_documented_with_its_variable_and_its_default() -> None:
    text = read("docs/reference/configuration.md")
    rows = ROW.findall(text)
    documented = {v: re.findall(r"`([^`]*)`", rest.split("|")[0]) for v, rest in rows}
    assert len(documented) == len(rows), "a setting is listed twice"
    defaults = load({"FIRN_HOME": "/firn-home"})
    expected = {}
    for variable, keys in variables().items():
        value: Any = defaults
        for key in keys:
            value = getattr(value, key)
        expected[variable] = (
            [] if value is None else [value if isinstance(value, str) else json.dumps(value, default=str)]
        )
    expected["FIRN_HOME"] = [".firn"]
    expected["FIRN_CATALOG__WAREHOUSE"] = []  # made from FIRN_HOME
    assert documented == expected
    assert all(f"`{name}`" in text for name in NOT_SETTINGS)


def test_the_environments_are_documented_as_the_file_has_them() -> None:
    config = json.loads(read("config/config.json"))
    text = read("docs/reference/configuration.md")
    for setting in ("opportunistic_check_interval", "min_files_to_compact"):
        values = [str(config[e]["iceberg"]["compaction"][setting]) for e in ("development", "staging", "production")]
        assert f"| `{setting}` | {' | '.join(values)} |" in text


def test_every_filter_operator_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", read("docs/reference/filters.md"), re.MULTILINE)
    assert rows == list(OPERATORS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: there is no such heading"


def anchors(file: Path) -> set[str]:
    """The fragments that a Markdown renderer gives a document's headings."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


class Reader(HTMLParser):
    """Collects a page's text, what it would fetch, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)
        if tag == "a":
            self.links.append(values["href"])
        self.fetched += [values[n] for n in ("src", "href") if n in values and tag != "a"]
        self.ids += [values["id"]] if "id" in values else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def docs_page() -> Reader:
    reader = Reader()
    reader.feed(page(list(OPERATIONS.values())))
    return reader


def test_the_page_fetches_nothing_and_is_well_formed(docs_page: Reader) -> None:
    text = page(list(OPERATIONS.values()))
    assert not [address for address in docs_page.fetched if not address.startswith("data:")]
    assert not re.search(r"@import|url\(|https?://(?!localhost:8080)", text)
    assert not re.search(r"<[^>]+ (style|on\w+)=", text), "the policy of the page forbids it"
    assert docs_page.open == []
    assert len(docs_page.ids) == len(set(docs_page.ids))
    assert {link[1:] for link in docs_page.links if link.startswith("#")} <= set(docs_page.ids)
    named = {link.removeprefix("/docs/") for link in docs_page.links if link.startswith("/docs/")}
    assert named == set(guides())


def test_the_policy_of_the_page_allows_its_own_style_and_script_only() -> None:
    text = page(list(OPERATIONS.values()))
    policy = content_security_policy()
    for element in ("style", "script"):
        [content] = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'self'" in policy


def test_the_page_shows_every_field_every_example_and_every_error(docs_page: Reader) -> None:
    for operation in OPERATIONS.values():
        assert operation.name in docs_page.ids
        for row in [*request_rows(operation), *(row for _, rows in result_rows(operation) for row in rows)]:
            assert row.name in docs_page.text
        for number, example in enumerate(operation.examples, 1):
            assert f"{operation.name}-{number}" in docs_page.ids
            assert example.title in docs_page.text
    assert all(kind.code in docs_page.text for kind in error_classes())
    assert all(title in docs_page.text for title in GROUPS)


def test_what_an_example_says_is_text_on_the_page_and_one_argument_in_its_command() -> None:
    operation = OPERATIONS["LIST_TABLES"]
    example = Example("a <b> & c", {"operation": "LIST_TABLES", "tenant_id": "it's <i>"}, {"success": True})
    reader = Reader()
    changed = Operation(**{**vars(operation), "examples": (example,)})
    reader.feed(page([changed]))
    assert "a <b> & c" in reader.text
    [command] = [line for line in reader.text.splitlines() if "it'\"'\"'s <i>" in line]
    assert "-d '{" in command


def test_pretty_json_is_the_same_json() -> None:
    value = {"a": [1, {"b": "x" * 90}, []], "ø": None, "c": {}, "d": ["y" * 50, "z" * 50]}
    assert json.loads(pretty(value)) == value
    assert all(len(line) <= 110 for line in pretty(value).splitlines())


def test_what_only_an_administrator_may_do_is_documented() -> None:
    text = read("docs/reference/identities.md")
    [row] = re.findall(r"^\| `admin` \| (.*) \|$", text, re.MULTILINE)
    own = {name for name, operation in OPERATIONS.items() if operation.needs == "admin"}
    assert {name for name in own if name not in GROUPS["Identities"]} <= set(re.findall(r"[A-Z]+_[A-Z]+", row))
    assert own >= set(GROUPS["Identities"])
    for name, operation in OPERATIONS.items():
        assert operation.changes or operation.needs == "reader" or name in GROUPS["Identities"]
