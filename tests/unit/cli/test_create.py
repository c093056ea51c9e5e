"""`firn table create`: all that its files say is done, or it is said what is not."""

from pathlib import Path
from typing import Any

import pytest

from service.cli.connection.remote import Unreachable
from tests.cli import Called
from tests.unit.cli.test_commands import firn

SCHEMA = "schema: {fields: {id: {type: long, required: true}}, primary_key: [id]}\n"
SPLIT = f"namespace: shop\ntable: orders\n{SCHEMA}split_points: [100, 200]\n"
WHERE = {"tenant_id": "default", "namespace": "shop", "table": "orders"}
SPLITTING = {"operation": "REINITIALISE_TABLE", **WHERE, "split_points": [100, 200], "confirm": True}
REFUSED = {"success": False, "error": {"code": "INVALID_REQUEST", "message": "split_points are wrong"}}


class Service:
    """Creates tables unless they are there, and splits them unless it is told to do otherwise."""

    def __init__(self, *, there: bool = False, split: Any = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._there = there
        self._split = split or {"success": True, "split_points": [100, 200], "records_deleted": 0}

    def send(self, request: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        self.asked.append(request)
        if request["operation"] == "CREATE_TABLE":
            return {"success": True, "table_created": not self._there}
        if isinstance(self._split, Exception):
            raise self._split
        answer: dict[str, Any] = self._split
        return answer

    def job(self, job_id: str) -> dict[str, Any]:
        raise AssertionError(job_id)

    cancel = job

    def close(self) -> None:
        pass


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(SPLIT)
    return str(path)


def test_a_file_with_split_points_makes_a_table_that_is_split(file: str) -> None:
    service = Service()
    assert firn(["table", "create", file], service) == Called(0, "created shop.orders\nit is split at 100, 200\n", "")
    create, split = service.asked
    assert (create["operation"], "split_points" in create) == ("CREATE_TABLE", False)
    assert split == {**SPLITTING, "create_backup": True}
    done = firn(["table", "create", file, "--json"], Service())
    assert done.out == '{"success":true,"table_created":true,"split_points":[100,200]}\n'


def test_an_existing_table_is_never_created_again(file: str) -> None:
    service = Service(there=True)
    done = firn(["table", "create", file, "--if-not-exists"], service)
    assert done == Called(0, "shop.orders already exists\n", "")
    assert [request["operation"] for request in service.asked] == ["CREATE_TABLE"]


def test_one_that_is_created_and_not_split_is_told(file: str) -> None:
    result = f"firn: shop.orders is created, but not split; `firn table reinitialise {file}` splits it\n"
    done = firn(["table", "create", file], Service(split=REFUSED))
    assert done == Called(1, "", f"{result}firn: INVALID_REQUEST: split_points are wrong\n")
    done = firn(["table", "create", file], Service(split=Unreachable("no service responds")))
    assert done == Called(3, "", f"{result}firn: no service responds\n")


def test_rows_that_came_meanwhile_are_kept_and_told(file: str) -> None:
    split = {"success": True, "split_points": [100, 200], "records_deleted": 1, "backup": "backup-x"}
    assert firn(["table", "create", file], Service(split=split)).out == (
        "created shop.orders\nit is split at 100, 200\n1 row written in the meantime can be restored from backup-x\n"
    )


def test_a_properties_file_leaves_alone_what_else_the_tables_file_says(tmp_path: Path) -> None:
    compaction = "compaction: {mode: auto, min_files_to_compact: 9}"
    properties = f"properties: {{compression: zstd, {compaction}, snapshots: {{keep_last: 3}}}}\n"
    (tmp_path / "t.yaml").write_text(f"table: t\n{SCHEMA}{properties}")
    (tmp_path / "p.properties").write_text("compaction.min_files_to_compact = 5\ndescription = x\n")
    service = Service()
    done = firn(["table", "create", str(tmp_path / "t.yaml"), "--properties", str(tmp_path / "p.properties")], service)
    assert done.code == 0, done.err
    assert service.asked[0]["properties"] == {
        "compression": "zstd",
        "compaction": {"mode": "auto", "min_files_to_compact": 5},
        "snapshots": {"keep_last": 3},
        "description": "x",
    }


@pytest.mark.parametrize("key", ["schema", "partition", "properties"])
def test_a_part_of_a_tables_file_that_is_no_object_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "t.yaml").write_text(f"table: t\n{key}: null\n")
    (tmp_path / "p.properties").write_text("description = x\n")
    service = Service()
    done = firn(["table", "create", str(tmp_path / "t.yaml"), "--properties", str(tmp_path / "p.properties")], service)
    assert (done.code, service.asked, f"{key} must be an object" in done.err) == (2, [], True)
