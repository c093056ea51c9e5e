"""Refreshes have the rights that the table's creator has then; a request refreshes only what its sender may write."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from service.dynamic.rights import Creators
from service.errors import Forbidden, LedgerUnavailable
from service.model.call import Call
from service.model.dynamic.definition import read_definition
from service.model.identity.principal import ANYONE, LOCAL, Grant, Principal
from tests.support.dynamic import defined, named
from tests.support.refreshing import INCREMENTAL, Refreshing

ANN, NOBODY = Principal("acme/ann", (Grant("writer", "acme"),), "4fW9kQ0aBz"), Principal("acme/ann")
SHOP = Principal("acme/shop", (Grant("writer", "acme", "shop"),), "4fW9kQ0aBz")


class Rights:
    """The rights of every creator, which a test changes."""

    def __init__(self) -> None:
        self.now = ANN
        self.asked: list[str | None] = []
        self.fails = False

    def of_owner(self, owner: str | None) -> Principal:
        self.asked.append(owner)
        if self.fails:
            raise LedgerUnavailable("no answer")
        return self.now


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
def world(tmp_path: Path, rights: Rights) -> Refreshing:
    world = Refreshing(tmp_path, options=INCREMENTAL)
    world.passes.creators = Creators(rights.of_owner)
    world.base("lab.rats")
    world.dynamic("lab.clean", "lab.rats", owner=ANN.dumps())
    world.dynamic("shop.report", "lab.clean", owner=ANN.dumps())
    world.dynamic("top.above", "shop.report", owner=ANN.dumps())
    return world


def test_each_refresh_asks_for_the_rights_of_the_creator_again(world: Refreshing, rights: Rights) -> None:
    for _ in range(2):
        world.refresh("shop.report")
    assert rights.asked == [ANN.dumps()] * 4


@pytest.mark.parametrize("kept", ["reader:acme", "writer:acme/shop", "writer:other", None])
def test_without_these_rights_a_table_fails_for_good_and_says_why(
    world: Refreshing, rights: Rights, kept: str | None
) -> None:
    world.refresh("shop.report")
    done = len(world.engine.done)
    world.add("lab.rats")
    rights.now = Principal("acme/ann", (Grant.parse(kept, "roles"),) if kept else ())
    # The request's sender has more rights; they do not count.
    for _ in range(3):
        assert world.refresh("lab.clean")["clean"] == "failed FORBIDDEN"
    assert len(world.engine.done) == done
    known = world.known("lab.clean")
    assert known.state == "failed"
    assert known.reason is not None
    assert known.reason.startswith("FORBIDDEN: clean is refreshed with the rights of its creator, who ")
    assert "rats" not in known.reason


def test_a_table_whose_sources_its_creator_may_not_read_now_is_not_refreshed(world: Refreshing, rights: Rights) -> None:
    rights.now = SHOP
    with pytest.raises(Forbidden, match="may not read all tables") as caught:
        world.passes.creators.check(world.known("shop.report").definition)
    assert "lab" not in caught.value.message
    assert "clean" not in caught.value.message


def test_a_table_made_without_authentication_has_no_rights_once_it_is_on(world: Refreshing, rights: Rights) -> None:
    world.dynamic("shop.old", "lab.rats", owner=ANYONE.dumps())
    rights.now = NOBODY
    assert world.refresh("shop.old")["old"] == "failed FORBIDDEN"
    assert "without authentication" in (world.known("shop.old").reason or "")


def test_while_the_rights_cannot_be_read_the_table_waits(world: Refreshing, rights: Rights) -> None:
    rights.fails = True
    for _ in range(4):
        world.refresh("lab.clean")
    assert (world.known("lab.clean").state, world.known("lab.clean").failures) == ("active", 0)
    rights.fails = False
    assert world.refresh("lab.clean") == {"clean": "FULL FIRST_BUILD"}


def test_another_creator_makes_a_failed_table_active(world: Refreshing, rights: Rights) -> None:
    rights.now = NOBODY
    for _ in range(3):
        world.refresh("lab.clean")
    assert world.known("lab.clean").state == "failed"
    table = world.load("lab.clean")
    options = world.known("lab.clean").definition.options
    changed = world.definitions.set_options(table, options, LOCAL)
    assert world.definitions.of(changed).state == "active"
    assert world.definitions.of(changed).definition.owner == LOCAL.dumps()
    assert world.definitions.set_options(changed, options, LOCAL) is changed


def test_a_request_leaves_tables_as_they_are_that_its_sender_may_not_write(world: Refreshing) -> None:
    world.refresh("top.above")
    world.add("lab.rats")
    done = len(world.engine.done)
    shop = Call("request-1", principal=SHOP)
    assert world.refresh("shop.report", call=shop, cascade=True) == {
        "clean": "as_it_is NOT_ALLOWED",
        "report": "NO_DATA NO_CHANGES",
        "above": "as_it_is NOT_ALLOWED",
    }
    assert len(world.engine.done) == done
    worker = Call("worker-1", principal=LOCAL)
    assert set(world.refresh("top.above", call=worker).values()) == {"INCREMENTAL REFRESH_MODE"}


def test_a_definition_without_a_creator_is_read() -> None:
    made = defined("report", "orders", owner=ANN.dumps())
    assert read_definition(made.name, made.uuid, made.text) == made
    stored = json.loads(made.text)
    del stored["owner"]
    before = read_definition(named("report"), made.uuid, json.dumps(stored))
    assert before == replace(made, owner=None)
