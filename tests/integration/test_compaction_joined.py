"""Files large enough that all cores write, and what they wrote is joined: whole, in its partition, for every reader."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DoubleType

from service.engine.jobs import rewrite as rewriting
from tests.harness import Firn
from tests.integration.test_other_readers import FULL, NOTHING, by_duckdb, by_firn, by_pyiceberg, foreign
from tests.integration.test_other_readers import SCHEMA as EVERY_TYPE
from tests.support.marks import thorough_after

SCHEMA = {
    "fields": {"id": {"type": "long", "required": True}, "country": {"type": "string"}, "text": {"type": "string"}}
}
ROWS, BYTES = 50, 40_000  # of a WRITE, and of each row's text, which nothing makes smaller


def texts(chance: random.Random) -> str:
    return chance.randbytes(BYTES // 2).hex()


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts each file was joined of."""
    seen: list[int] = []
    real: Callable[..., Any] = rewriting.joined_files

    def joined(session: Any, table: Any, parts: Any, files: int) -> Any:
        seen.append(len(parts))
        return real(session, table, parts, files)

    monkeypatch.setattr(rewriting, "joined_files", joined)
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy", thorough_after(1, [{}, {"strategy": "sort", "sort_by": ["id"]}]), ids=["binpack", "sort"]
)
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


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that can be compared: NaN is equal to nothing, and numbers in JSON are exact."""
    return [row | {name: str(float(row[name])) for name in ("ratio", "added") if row[name] is not None} for row in rows]


@pytest.mark.thorough
def test_joined_files_hold_every_row_and_value_for_every_reader(firn: Firn, tenant: str, joins: list[int]) -> None:
    """Of every type, with nulls and NaN, and a column that the older files do not have. One of two partitions is so
    much the larger that all cores are for it."""
    address, chance = {"tenant_id": tenant, "table": "t"}, random.Random(2)
    firn.ok(
        {
            "operation": "CREATE_TABLE",
            **address,
            "schema": EVERY_TYPE,
            "partition": {"partitions": [{"field": "active", "transform": "identity"}]},
            "properties": {"compression": "uncompressed"},
        }
    )
    for i in range(6):
        if i == 3:
            with foreign(firn, tenant).update_schema() as change:
                change.add_column("added", DoubleType())
        rows = [
            {**FULL, "id": i * 100 + n, "active": None if n % 5 == 1 else True, "name": texts(chance)}
            for n in range(ROWS)
        ]
        rows[0] |= {"ratio": "NaN", "tags": None, "address": {"city": None, "lines": []}}
        rows[1] |= {**NOTHING, "id": rows[1]["id"], "name": texts(chance)}
        rows[2] |= {"ratio": "-Infinity"} | ({"added": "Infinity"} if i == 5 else {})
        firn.ok({"operation": "WRITE", **address, "records": rows})
    asked = [{"ratio": {"gt": 0.05}}, {"ratio": {"lt": 0}}, {"ratio": {"is_null": True}}, {"added": {"gt": 1}}]
    before = shown(by_firn(firn, tenant))
    counts = [len(firn.rows(tenant, "t", filter=f, projection=["id"])) for f in asked]
    assert len(before) == 6 * ROWS
    stats = firn.ok({"operation": "COMPACT", **address})["stats"]
    assert (stats["files_before"], stats["files_after"], stats["groups_failed"]) == (12, 2, 0)
    assert [parts > 1 for parts in joins] == [True], "nothing was joined"
    assert shown(by_firn(firn, tenant)) == before
    assert shown(by_pyiceberg(firn, tenant)) == before
    assert shown(by_duckdb(firn, tenant)) == before
    assert [len(firn.rows(tenant, "t", filter=f, projection=["id"])) for f in asked] == counts
