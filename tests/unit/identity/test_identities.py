"""From the headers of a request to its sender."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.errors import Unauthenticated
from service.identity.api_keys import ApiKeys
from service.identity.identities import Identities, presented
from service.ledger.api_keys import ApiKeyRecords
from service.model.call import Call, Credential
from service.model.identity.principal import ANYONE, LOCAL, Grant, Principal
from tests.fakes import QuickLedger

NONE = Credential()


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[ApiKeys]:
    ledger = QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield ApiKeys(ApiKeyRecords(ledger))
    ledger.close()


def sender(identities: Identities, credential: Credential = NONE, **call: Principal) -> Principal:
    return asyncio.run(identities.authenticate(Call("r", credential=credential, **call)))


@pytest.mark.parametrize(
    "credential",
    [
        Credential(("Bearer KEY",)),
        Credential(("bearer KEY",)),
        Credential((" Bearer  KEY ",)),
        Credential((), ("KEY",)),
        Credential(("Bearer KEY",), ("KEY",)),
    ],
)
def test_a_key_may_be_in_either_header(credential: Credential, keys: ApiKeys) -> None:
    text = keys.create(LOCAL, "acme", "ann", [Grant("reader", "acme")]).text

    def with_key(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value.replace("KEY", text) for value in values)

    shown = Credential(with_key(credential.authorization), with_key(credential.api_key))
    assert sender(Identities(True, keys), shown).name == "acme/ann"


@pytest.mark.parametrize(
    "credential",
    [
        Credential(),
        Credential(("",)),
        Credential(("Bearer",)),
        Credential(("Bearer ",)),
        Credential((), ("",)),
        Credential(("Basic YTpi",)),
        Credential(("Bearer firn_abc",)),
        Credential(("Bearer one", "Bearer two")),
        Credential(("Bearer one",), ("two",)),
        Credential(("firn_abc",)),
        Credential(("Bearer eyJhbGciOiJub25lIn0.e30.",)),
    ],
)
def test_without_one_valid_credential_nobody_is_let_in(credential: Credential, keys: ApiKeys) -> None:
    with pytest.raises(Unauthenticated) as refused:
        sender(Identities(True, keys), credential)
    for text in (*credential.authorization, *credential.api_key):
        assert len(text) < 8 or text not in refused.value.message


def test_without_authentication_everybody_is_anyone(keys: ApiKeys) -> None:
    assert sender(Identities(False, keys), Credential(("Bearer nonsense",))) is ANYONE


def test_a_call_of_our_own_has_its_sender(keys: ApiKeys) -> None:
    assert sender(Identities(True, keys), principal=LOCAL) is LOCAL


def test_a_credential_is_in_no_text_of_a_call() -> None:
    call = Call("r", credential=Credential(("Bearer secret",), ("secret",)))
    assert "secret" not in f"{call} {call!r} {call.credential} {call.credential!r}"
    with pytest.raises(Unauthenticated) as refused:
        presented(Credential(("Digest secret",)))
    assert "secret" not in refused.value.message


class TestOwnersOfSchedules:
    def test_have_the_rights_that_their_keys_have_now(self, keys: ApiKeys) -> None:
        identities = Identities(True, keys)
        new = keys.create(LOCAL, "acme", "ann", [Grant("writer", "acme")])
        owner = sender(identities, Credential((), (new.text,))).dumps()
        assert identities.of_owner(owner).may("writer", "acme")
        keys.revoke(LOCAL, "acme", new.record.id)
        assert not identities.of_owner(owner).may("reader", "acme", somewhere=True)

    def test_of_tokens_have_the_rights_of_the_token(self, keys: ApiKeys) -> None:
        owner = Principal("jwt:ann", (Grant("writer", "acme", "shop"),), "jwt")
        assert Identities(True, keys).of_owner(owner.dumps()) == owner

    def test_without_authentication_have_none_once_it_is_required(self, keys: ApiKeys) -> None:
        assert Identities(False, keys).of_owner(None) is ANYONE
        assert not Identities(True, keys).of_owner(ANYONE.dumps()).may("reader", "acme", somewhere=True)


def test_a_service_that_needs_keys_and_has_none_knows_it(keys: ApiKeys) -> None:
    tokens = FakeTokens()
    assert [each.lack_keys for each in (Identities(True, keys), Identities(False, keys))] == [True, False]
    assert not Identities(True, keys, tokens).lack_keys
    keys.create(LOCAL, "acme", "ann", [Grant("reader", "acme")])
    assert not Identities(True, keys).lack_keys


class FakeTokens:
    def needs_reading(self, token: str) -> bool:
        return False

    def principal_of(self, token: str) -> Principal:
        return ANYONE
