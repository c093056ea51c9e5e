"""No two tables export to the same files: a folder that another table has is refused, wherever it is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.app import App
from service.errors import InvalidRequest
from service.ingest.exports.folders import check_folder
from service.ingest.sources.roots import Roots
from service.ledger.ingestions import RegisteredTable
from service.model.ingest.table_file import TableFile
from service.model.names import TableName
from tests.harness import Firn
from tests.support.served import served

COLUMNS = {"columns": [{"name": "id", "type": "INTEGER"}]}
OTHER = TableName("acme", "lab", "trial")


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


def config(folder: object, name: str = "sales", **keys: Any) -> dict[str, Any]:
    kind = "s3" if str(folder).startswith("s3:") else "local"
    return {"name": name, "storage": {"type": kind, "base_path": str(folder), "format": "csv"}, **keys}


def check(ours: dict[str, Any], others: dict[str, Any], name: TableName = OTHER, roots: tuple[str, ...] = ()) -> None:
    other = RegisteredTable(name, "u", TableFile.model_validate(others).model_dump_json(exclude_unset=True))
    check_folder(TableFile.model_validate(ours), "acme", [other], Roots(roots))


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ("data/a", "data/a/"),
        ("data/a", "data/b/../a"),
        ("s3://bucket/a", "s3://bucket/a/"),
        ("s3://bucket", "s3://bucket/"),
    ],
)
def test_the_same_folder_is_refused_however_it_is_written(ours: str, others: str) -> None:
    for one, other in ((ours, others), (others, ours)):
        with pytest.raises(InvalidRequest, match="table 'trial' of namespace 'lab'") as refused:
            check(config(one), config(other))
        assert refused.value.field == "config.storage.base_path"


def test_a_link_to_the_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(InvalidRequest):
        check(config(tmp_path / "out"), config(tmp_path / "link"))


def test_a_table_of_another_tenant_is_not_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(config("data/a"), config("data/a"), TableName("other", "secret", "hidden"))
    assert not {"other", "secret", "hidden"} & set(refused.value.message.replace("'", " ").split())


HIVE = {"partitioning": {"strategy": "hive"}}
BY_YEAR = {"partitioning": {"pattern": "{year}/{date}.csv"}}


@pytest.mark.parametrize(
    ("ours", "others", "meet"),
    [
        (config("data"), config("data/a"), False),  # data/2024-01-01.csv, data/a/2024-01-01.csv
        (config("data", **BY_YEAR), config("data/a"), True),  # data/2024/..., data/a/...: a may be called 2024
        (config("data", partitioning={"pattern": "b/{date}.csv"}), config("data/a"), False),
        (config("data", partitioning={"pattern": "a/{date}.csv"}), config("data/a"), True),
        (config("data", **HIVE), config("data/a", **HIVE), False),
        (config("data/a"), config("data/b"), False),
        (config("data/a"), config("data/ab"), False),
    ],
)
def test_a_folder_in_anothers_is_refused_if_their_files_may_meet(
    ours: dict[str, Any], others: dict[str, Any], meet: bool
) -> None:
    for one, other in ((ours, others), (others, ours)):
        if meet:
            with pytest.raises(InvalidRequest, match="choose another folder"):
                check(one, other)
        else:
            check(one, other)


def test_a_table_that_cannot_write_to_its_folder_is_in_nobodys_way() -> None:
    check(config("/data/a"), {"name": "trial"})
    with pytest.raises(InvalidRequest, match="may be ingested"):
        check(config("/data/a"), config("/data/a"), roots=("/elsewhere",))
    check({"name": "sales"}, config("/data/a"), roots=("/elsewhere",))


def test_creating_applying_and_exporting_are_refused(firn: Firn, tenant: str, tmp_path: Path) -> None:
    def request(operation: str, file: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"operation": operation, "tenant_id": tenant, "config": file, "dataset": COLUMNS, **fields}

    out, others = tmp_path / "out", tmp_path / "others"
    create = request("CREATE_TABLE", config(out))
    firn.ok(create)
    firn.ok({**create, "if_not_exists": True})
    taken = firn.fail(request("CREATE_TABLE", config(out, "second")), "INVALID_REQUEST")
    assert taken["field"] == "config.storage.base_path"
    assert "'sales'" in taken["message"]
    firn.ok(request("CREATE_TABLE", config(others, "second")))
    for fields in ({}, {"dry_run": True}):
        moved = firn.fail(request("APPLY_TABLE", config(out, "second"), **fields), "INVALID_REQUEST")
        assert "'sales'" in moved["message"]
    firn.ok(request("APPLY_TABLE", config(out, description="the same folder")))
    table = {"tenant_id": tenant, "table": "sales"}
    firn.ok({"operation": "DROP_TABLE", **table})
    firn.ok(request("APPLY_TABLE", config(out, "second")))
    firn.ok({"operation": "RESTORE_TABLE", **table})
    for name in ("sales", "second"):
        refused = firn.fail({"operation": "EXPORT", "tenant_id": tenant, "table": name}, "INVALID_REQUEST")
        assert refused["field"] == "table"
    firn.ok(request("APPLY_TABLE", config(others, "second")))
    firn.ok({"operation": "EXPORT", **table})
