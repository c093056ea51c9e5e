"""Twenty clients alter, rename and write one table at once: what was acknowledged is there, and nothing else is."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from service.catalog.tables import Catalog
from service.ledger.ledger import Ledger
from service.model import wire
from tests.harness import Firn

WRITERS, ALTERERS, RENAMERS = 10, 6, 4
WRITES, ALTERATIONS, RENAMES = 8, 4, 4
NAMES = ("north", "east", "south", "west")


class Crowd:
    """The clients, and what they were told."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn, self.tenant = firn, tenant
        self.statuses: Counter[str] = Counter()
        self.rows: set[int] = set()
        self.columns: set[str] = set()
        self.renames = 0
        self._lock = threading.Lock()
        self._start = threading.Barrier(WRITERS + ALTERERS + RENAMERS)

    def run(self) -> None:
        work = [*[self._write] * WRITERS, *[self._alter] * ALTERERS, *[self._rename] * RENAMERS]
        with ThreadPoolExecutor(len(work)) as pool:
            for done in [pool.submit(one, number) for number, one in enumerate(work)]:
                done.result()

    def _write(self, number: int) -> None:
        with httpx.Client(base_url=self.firn.base_url, timeout=120) as client:
            self._start.wait()
            for n in range(WRITES):
                row = number * 1000 + n

                def request(name: str, row: int = row) -> dict[str, Any]:
                    return {"operation": "WRITE", "table": name, "records": [{"id": row}]}

                self._until_done(client, number, f"w{row}", request)
                with self._lock:
                    self.rows.add(row)

    def _alter(self, number: int) -> None:
        with httpx.Client(base_url=self.firn.base_url, timeout=120) as client:
            self._start.wait()
            for n in range(ALTERATIONS):
                column, renamed = f"c{number}_{n}", f"d{number}_{n}"

                def add(name: str, column: str = column) -> dict[str, Any]:
                    return {"operation": "ALTER_TABLE", "table": name, "add_columns": {column: {"type": "long"}}}

                def rename(name: str, column: str = column, renamed: str = renamed) -> dict[str, Any]:
                    return {"operation": "ALTER_TABLE", "table": name, "rename_columns": {column: renamed}}

                self._until_done(client, number, column, add)
                self._until_done(client, number, renamed, rename)
                with self._lock:
                    self.columns.add(renamed)

    def _rename(self, number: int) -> None:
        """From whatever it is called to whatever else; who comes too late is told so."""
        luck = random.Random(number)
        with httpx.Client(base_url=self.firn.base_url, timeout=120) as client:
            self._start.wait()
            done = 0
            for n in itertools.count():
                old, new = luck.sample(NAMES, 2)
                request = {"operation": "RENAME_TABLE", "table": old, "new_name": new}
                status = self._ask(client, {**request, "idempotency_key": f"r{number}-{n}"})
                done += status == "OK"
                if done == RENAMES:
                    break
            with self._lock:
                self.renames += done

    def _until_done(
        self, client: httpx.Client, number: int, what: str, request: Callable[[str], dict[str, Any]]
    ) -> None:
        """Send a request to one name after another until the table has it."""
        for n in itertools.count(number):
            # Another name is another request, and so another key.
            key = {"idempotency_key": f"{what}-{n}"} if n % 2 else {}
            status = self._ask(client, {**request(NAMES[n % len(NAMES)]), **key})
            if status == "OK":
                return

    def _ask(self, client: httpx.Client, request: dict[str, Any]) -> str:
        response = client.post("/database", content=wire.render({**request, "tenant_id": self.tenant}))
        body = Firn.parsed(response)
        status = "OK" if body["success"] else f"{response.status_code} {body['error']['code']}"
        with self._lock:
            self.statuses[status] += 1
        return status


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_twenty_clients_at_one_table_lose_nothing_and_see_no_500(firn: Firn, tenant: str) -> None:
    fields = {"id": {"type": "long", "required": True}}
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": NAMES[0], "schema": {"fields": fields}})
    before = firn.app.parts[Catalog]
    crowd = Crowd(firn, tenant)
    crowd.run()
    assert set(crowd.statuses) <= {"OK", "404 TABLE_NOT_FOUND", "409 COMMIT_CONFLICT", "409 TABLE_EXISTS"}
    assert crowd.renames == RENAMERS * RENAMES
    [name] = before.list_tables(tenant, "default")
    rows = firn.rows(tenant, name, projection=["id"])
    assert sorted(row["id"] for row in rows) == sorted(crowd.rows)
    assert len(crowd.rows) == WRITERS * WRITES
    described = firn.ok({"operation": "DESCRIBE_TABLE", "tenant_id": tenant, "table": name})["description"]
    assert set(described["schema"]["fields"]) == {"id"} | crowd.columns
    assert len(crowd.columns) == ALTERERS * ALTERATIONS
    assert firn.app.parts[Ledger].unfinished() == []
