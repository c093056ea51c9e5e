"""The function entry point: the documented commands as they stand, many at once, and what it refuses."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.api.events import INVOCATIONS
from service.model import wire
from tests.contract.entry_points import status_and_body
from tests.harness import Firn

CREATE = r"""
curl -X POST http://localhost:8080/2015-03-31/functions/function/invocations -H "Content-Type: application/json" \
  -d '{"httpMethod":"POST","path":"/database","body":"{\"operation\":\"CREATE_TABLE\",\"tenant_id\":\"test-tenant\",\"namespace\":\"default\",\"table\":\"test_users\",\"schema\":{\"fields\":{\"name\":{\"type\":\"string\",\"required\":true},\"age\":{\"type\":\"integer\",\"required\":false}}},\"if_not_exists\":true}"}'
"""  # noqa: E501  # as documented, character for character
WRITE = r"""
for i in {1..5}; do curl -s -X POST http://localhost:8080/2015-03-31/functions/function/invocations -H "Content-Type: application/json" \
  -d "{\"httpMethod\":\"POST\",\"path\":\"/database\",\"body\":\"{\\\"operation\\\":\\\"WRITE\\\",\\\"tenant_id\\\":\\\"test-tenant\\\",\\\"namespace\\\":\\\"default\\\",\\\"table\\\":\\\"test_users\\\",\\\"records\\\":[{\\\"name\\\":\\\"User-$i\\\",\\\"age\\\":$((20+i))}]}\"}" \
  | jq '.body | fromjson | {compaction_recommended, small_files_count}'; done
"""  # noqa: E501
JQ = "| jq '.body | fromjson | {compaction_recommended, small_files_count}'"
TABLE = {"tenant_id": "test-tenant", "namespace": "default", "table": "test_users"}


def bash(firn: Firn, script: str) -> str:
    """What a script prints, with this service in the place of the documented one."""
    script = script.replace("http://localhost:8080", firn.base_url)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def values(text: str) -> list[Any]:
    """The JSON values that stand one after another in a text."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def test_the_documented_commands_work_as_they_stand_and_the_fifth_write_recommends_compaction(firn: Firn) -> None:
    firn.ok({"operation": "DROP_TABLE", **TABLE, "if_exists": True})
    [created] = values(bash(firn, CREATE))
    assert status_and_body(created)[1]["table_created"] is True
    assert JQ in WRITE
    if shutil.which("jq"):
        said = values(bash(firn, WRITE))
    else:
        answers = [status_and_body(answer) for answer in values(bash(firn, WRITE.replace(JQ, "")))]
        assert [status for status, _ in answers] == [200] * 5
        said = [{k: body[k] for k in ("compaction_recommended", "small_files_count")} for _, body in answers]
    assert said == [
        *[{"compaction_recommended": False, "small_files_count": None}] * 4,
        {"compaction_recommended": True, "small_files_count": 5},
    ]
    [again] = values(bash(firn, CREATE))
    assert status_and_body(again)[1]["table_existed"] is True
    rows = firn.rows("test-tenant", "test_users", sort=["name"])
    assert rows == [{"name": f"User-{i}", "age": 20 + i} for i in range(1, 6)]


def test_fifty_events_at_once_all_succeed_and_every_row_is_there(firn: Firn, tenant: str) -> None:
    create = CREATE.replace("test-tenant", tenant)
    assert status_and_body(values(bash(firn, create))[0])[0] == 200
    request = {"operation": "WRITE", **TABLE, "tenant_id": tenant}
    bodies = [json.dumps({**request, "records": [{"name": f"User-{i}", "age": i}]}) for i in range(50)]
    send = [{"httpMethod": "POST", "path": "/database", "body": body} for body in bodies]
    with ThreadPoolExecutor(50) as pool:
        answers = [status_and_body(answer) for answer in pool.map(firn.event, send)]
    assert [status for status, _ in answers] == [200] * 50, answers
    checked = [body for _, body in answers if "small_files_count" in body]
    assert len(checked) == 10
    # They share their commits, so there may be too few files to recommend anything.
    assert all(body["compaction_recommended"] is (body["small_files_count"] >= 3) for body in checked)
    commits = {body["metadata"]["snapshot_id"]: body["metadata"]["batch"]["requests"] for _, body in answers}
    assert sum(commits.values()) == 50
    assert len(commits) < 25
    rows = firn.rows(tenant, "test_users", sort=["age"])
    assert rows == [{"name": f"User-{i}", "age": i} for i in range(50)]


def test_the_create_command_fired_many_times_at_once_creates_one_table(firn: Firn, tenant: str) -> None:
    request = {
        "operation": "CREATE_TABLE",
        "tenant_id": tenant,
        "table": "once",
        "schema": {"fields": {"a": {"type": "long"}}},
        "if_not_exists": True,
    }
    event = {"httpMethod": "POST", "path": "/database", "body": json.dumps(request)}
    with ThreadPoolExecutor(20) as pool:
        answers = [status_and_body(answer) for answer in pool.map(firn.event, [event] * 20)]
    assert [status for status, _ in answers] == [200] * 20, answers
    assert sum(body["table_created"] for _, body in answers) == 1
    assert all(body["table_created"] != body["table_existed"] for _, body in answers)


def test_health_is_asked_by_event_in_both_versions(firn: Firn) -> None:
    for event in (
        {"httpMethod": "GET", "path": "/health"},
        {"rawPath": "/health", "requestContext": {"http": {"method": "GET"}}},
    ):
        answer = firn.event(event)
        assert answer["statusCode"] == 200
        assert wire.parse(answer["body"]) == {"status": "healthy", "service": "firn"}


@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        ({"httpMethod": "POST", "path": "/databse", "body": "{}"}, 404, "NOT_FOUND"),
        ({"rawPath": "/", "requestContext": {"http": {"method": "POST"}}, "body": "{}"}, 404, "NOT_FOUND"),
        ({"httpMethod": "DELETE", "path": "/database", "body": "{}"}, 405, "METHOD_NOT_ALLOWED"),
        ({"httpMethod": "POST", "path": "/database"}, 400, "INVALID_REQUEST"),
        ({"httpMethod": "POST", "path": "/database", "body": "{'a': 1}"}, 400, "INVALID_REQUEST"),
        ({"httpMethod": "POST", "path": "/database", "body": "e30", "isBase64Encoded": True}, 400, "INVALID_REQUEST"),
        ({"source": "aws.events", "detail": None}, 400, "INVALID_REQUEST"),
        ({"operation": "LIST_TABLES", "tenant_id": "a"}, 400, "INVALID_REQUEST"),
        ([], 400, "INVALID_REQUEST"),
    ],
)
def test_a_wrong_event_is_refused_inside_its_answer(event: Any, status: int, code: str, firn: Firn) -> None:
    got, body = status_and_body(firn.event(event))
    assert (got, body["success"], body["error"]["code"]) == (status, False, code)


def test_an_event_that_is_no_json_is_refused_inside_its_answer_too(firn: Firn) -> None:
    for content in (b"", b"{", b"\xff", b"[" * 100_000):
        response = firn.client.post(INVOCATIONS, content=content)
        assert response.status_code == 200
        status, body = status_and_body(firn.parsed(response))
        assert (status, body["error"]["code"]) == (400, "INVALID_REQUEST")


def test_a_failed_request_has_its_own_status_inside_the_answer(firn: Firn, tenant: str) -> None:
    body = json.dumps({"operation": "QUERY", "tenant_id": tenant, "table": "nothing"})
    status, said = status_and_body(firn.event({"httpMethod": "POST", "path": "/database", "body": body}))
    assert (status, said["error"]["code"]) == (404, "TABLE_NOT_FOUND")
