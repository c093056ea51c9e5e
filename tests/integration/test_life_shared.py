"""Two instances on one PostgreSQL rename, drop and restore tables at once: none is lost, and the notes agree."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service.catalog.connect import connect
from service.commits.commit import Commits
from service.errors import CommitConflict, TableExists, TableNotFound
from service.ledger.ledger import Ledger
from service.ledger.table_records import DROPPED, TableRecords
from service.model.call import Call, IdempotencyKey
from service.model.names import TableName, dropped_table_name
from service.model.schema.definition import parse_schema
from service.settings import DroppedTableSettings, load
from service.tables.life import TableLifecycle
from tests.postgres import PostgresServer

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
NAMES = ("north", "east", "south")
STEPS = 25


class Instance:
    def __init__(self, url: str, home: Path, warehouse: Path) -> None:
        home.mkdir()
        settings = {"FIRN_HOME": str(home), "FIRN_LEDGER__URL": url, "FIRN_CATALOG__TYPE": "postgresql"}
        settings |= {"FIRN_CATALOG__URI": url, "FIRN_CATALOG__WAREHOUSE": f"file://{warehouse}"}
        self.catalog = connect(load(settings))
        self.ledger = Ledger(url)
        self.commits = Commits(self.catalog, self.ledger)
        self.lives = TableRecords(self.ledger)
        self.life = TableLifecycle(DroppedTableSettings(), self.catalog, self.commits, self.lives)

    def wander(self, seed: int) -> int:
        """Take steps with tables at random; how many were taken, the others were refused."""
        luck, taken = random.Random(seed), 0
        for n in range(STEPS):
            one, other = luck.sample(NAMES, 2)
            name, what = TableName("acme", "shop", one), luck.choice(["rename", "drop", "restore"])
            call = Call(f"{seed}-{n}", IdempotencyKey(what, name, f"{seed}-{n}", "print"))
            try:
                if what == "rename":
                    self.life.rename(name, other, call)
                elif what == "drop":
                    self.life.drop(name, call, purge=False)
                else:
                    self.life.restore(name, other, None, call)
                taken += 1
            except (TableNotFound, TableExists, CommitConflict):
                continue
        return taken


def test_every_table_is_somewhere_once_and_the_ledger_says_where(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.url("lives")
    instances = [Instance(url, tmp_path / f"home-{n}", tmp_path / "warehouse") for n in range(2)]
    one = instances[0]
    uuids = {one.catalog.create(TableName("acme", "shop", name), SCHEMA, (), {}).uuid for name in NAMES[:2]}
    try:
        with ThreadPoolExecutor(6) as pool:
            taken = sum(pool.map(lambda n: instances[n % 2].wander(n), range(6)))
        assert taken > 10
        assert one.ledger.unfinished() == []
        here = {one.catalog.load(TableName("acme", "shop", t)).uuid: t for t in one.catalog.list_tables("acme", "shop")}
        for uuid in uuids:
            life = one.lives.find(uuid)
            assert life is not None
            assert life.step is None
            if life.state == DROPPED:
                assert uuid not in here
                assert one.catalog.load(dropped_table_name(uuid)).uuid == uuid
            else:
                assert here[uuid] == life.name.table
        assert here.keys() <= uuids
    finally:
        for instance in instances:
            instance.ledger.close()
