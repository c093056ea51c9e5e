"""The Postman files are what the generator writes, and complete."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from handlers import discover
from postman import generate
from service.operations.groups import GROUPS

FILES = generate.files()


def requests(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "request" in item:
        yield item
    for child in item.get("item", ()):
        yield from requests(child)


COLLECTION = generate.collection()
SESSION, *IN_GROUPS = COLLECTION["item"]
FOLDERS = {folder["name"]: folder["item"] for group in IN_GROUPS for folder in group["item"]}
REQUESTS = list(requests(COLLECTION))


def operations(items: list[dict[str, Any]]) -> list[str]:
    return [json.loads(i["request"]["body"]["raw"])["operation"] for i in items if "body" in i["request"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_committed_file_is_what_the_generator_writes(path: Any) -> None:
    assert path.read_text() == FILES[path], f"{path} is not up to date; run make postman"


def test_the_session_goes_from_health_to_a_query_after_the_compaction() -> None:
    session = SESSION["item"]
    assert session[0]["request"]["url"]["raw"] == "{{base_url}}/health"
    assert operations(session) == [
        "CREATE_TABLE",
        *["WRITE"] * 5,
        *["QUERY"] * 4,
        *("UPDATE", "UPSERT", "DELETE", "LIST_TABLES", "DESCRIBE_TABLE", "COMPACT", "QUERY"),
    ]


def test_the_collection_is_called_firn_and_has_a_folder_for_each_group() -> None:
    assert COLLECTION["info"]["name"] == "Firn"
    groups = {group["name"]: tuple(folder["name"] for folder in group["item"]) for group in IN_GROUPS}
    assert groups == GROUPS
    assert list(groups) == list(GROUPS)


def test_every_operations_examples_are_in_the_collection() -> None:
    assert set(FOLDERS) == {o.name for o in discover()}
    for operation in discover():
        names = [item["name"] for item in FOLDERS[operation.name]]
        assert {e.title for e in operation.examples} <= set(names)


@pytest.mark.parametrize("item", REQUESTS, ids=lambda item: item["name"])
def test_every_answer_is_checked(item: dict[str, Any]) -> None:
    script = "\n".join(line for e in item["event"] if e["listen"] == "test" for line in e["script"]["exec"])
    assert re.search(r"have\.status\(20[02]\)", script)
    assert script.count("pm.test(") >= 2
    if "body" in item["request"]:
        assert 'body["success"]' in script


def test_what_an_example_takes_is_kept_from_the_answer_that_has_it() -> None:
    *_, given, example = FOLDERS["DELETE_BACKUP"]
    [kept] = [line for line in given["event"][0]["script"]["exec"] if "collectionVariables.set" in line]
    assert kept.startswith('pm.collectionVariables.set("given_3_backup", ')
    assert kept.endswith(', body["backup"]);')
    assert json.loads(example["request"]["body"]["raw"])["name"] == "{{given_3_backup}}"


def test_a_snapshot_id_that_an_example_takes_is_text() -> None:
    *_, example = [item for item in FOLDERS["DIFF"] if "given" not in item["name"]][:1]
    raw = example["request"]["body"]["raw"]
    assert '"from_snapshot": "{{given_2_metadata_snapshot_id}}"' in raw
    assert '"to_snapshot": "{{given_4_metadata_snapshot_id}}"' in raw


def test_no_two_requests_of_a_folder_share_a_name() -> None:
    for folder, items in {"A session": SESSION["item"], **FOLDERS}.items():
        names = [item["name"] for item in items]
        assert len(names) == len(set(names)), folder


def test_an_environment_sets_every_variable_that_a_run_does_not() -> None:
    own = {"run", "table"}
    known = {variable["key"] for variable in COLLECTION["variable"]}
    environments = [json.loads(text) for path, text in FILES.items() if path.parent.name == "environments"]
    assert [e["name"] for e in environments] == ["Firn Development", "Firn Staging", "Firn Production"]
    for environment in environments:
        assert {value["key"] for value in environment["values"]} == known - own
