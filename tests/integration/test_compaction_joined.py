"""Files large enough that all cores write, and what they wrote is joined: whole, in its partition, for every reader."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergTable

from service.engine import rewrite as rewriting
from service.names import TableName
from tests.harness import Firn

SCHEMA = {
    "fields": {"id": {"type": "long", "required": True}, "country": {"type": "string"}, "text": {"type": "string"}}
}
ROWS, BYTES = 50, 40_000  # of a WRITE, and of each row's text, which nothing makes smaller


def foreign(firn: Firn, tenant: str) -> IcebergTable:
    """The table, as another program opens it."""
    catalog = load_catalog("firn", type="sql", uri=f"sqlite:///{firn.home}/catalog.db?timeout=30")
    return catalog.load_table(TableName(tenant, "default", "t").identifier)


def texts(chance: random.Random) -> str:
    return chance.randbytes(BYTES // 2).hex()


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts each file was joined of."""
    seen: list[int] = []
    real: Callable[..., Any] = rewriting.joined

    def joined(session: Any, table: Any, parts: Any, files: int) -> Any:
        seen.append(len(parts))
        return real(session, table, parts, files)

    monkeypatch.setattr(rewriting, "joined", joined)
    return seen


@pytest.mark.parametrize("strategy", [{}, {"strategy": "sort", "sort_by": ["id"]}], ids=["binpack", "sort"])
def test_files_of_an_older_partitioning_go_to_the_partitions_of_their_rows(
    firn: Firn, tenant: str, strategy: dict[str, Any]
) -> None:
    address, chance = {"tenant_id": tenant, "table": "t"}, random.Random(1)
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA})
    for i in range(6):
        rows = [{"id": i * 100 + n, "country": ["de", "at"][n % 2], "text": texts(chance)} for n in range(ROWS)]
        firn.ok({"operation": "WRITE", **address, "records": rows})
    with foreign(firn, tenant).update_spec() as update:
        update.add_identity("country")
    # The planner puts this one, of the null partition, together with all files of the older partitioning.
    firn.ok({"operation": "WRITE", **address, "records": [{"id": 1000, "text": "null"}]})
    before = firn.rows(tenant, "t", sort=["id"], projection=["id", "country"])
    stats = firn.ok({"operation": "COMPACT", **address, **strategy})["stats"]
    assert (stats["files_compacted"], stats["groups_failed"]) == (7, 0)
    assert firn.rows(tenant, "t", sort=["id"], projection=["id", "country"]) == before
    found = {task.file.partition[0]: task.file.file_path for task in foreign(firn, tenant).scan().plan_files()}
    assert set(found) == {"de", "at", None}
    for country, path in found.items():
        inside = pq.ParquetFile(Path(path.removeprefix("file://"))).read(["country"])["country"].to_pylist()
        assert set(inside) == {country}
