"""JSON Web Tokens: only those that the issuer signed, for us, now; and none that the sender made up."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from service.errors import Unauthenticated, Unavailable
from service.identity.key_sets import KeySets, parse, reader
from service.identity.tokens import Tokens
from service.model.identity.principal import Access
from service.settings import SettingsError, load
from service.settings.security import JwtSettings

ISSUER, AUDIENCE = "https://issuer.example.com/", "firn"
SETTINGS = JwtSettings(issuer=ISSUER, audience=AUDIENCE)


@cache
def private(name: str) -> Any:
    if name.startswith("ec"):
        return ec.generate_private_key(ec.SECP256R1())
    if name.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def public(name: str, **more: Any) -> dict[str, Any]:
    """A key as a set has it."""
    kinds = {"ec": jwt.algorithms.ECAlgorithm, "ed": jwt.algorithms.OKPAlgorithm}
    kind = kinds.get(name[:2], jwt.algorithms.RSAAlgorithm)
    return {**json.loads(kind.to_jwk(private(name).public_key())), "kid": name, **more}


def pem(name: str) -> bytes:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return bytes(private(name).public_key().public_bytes(*form))


def key_set(*names: str) -> bytes:
    return json.dumps({"keys": [public(name) for name in names]}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60, "roles": ["writer:acme/shop"]}
    return {name: value for name, value in {**made, **changed}.items() if value is not None}


def token(key: str = "rsa", algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), private(key), algorithm, {"kid": key, **(headers or {})})


def forged(header: dict[str, Any], signature: Callable[[bytes], bytes] = lambda text: b"", **changed: Any) -> str:
    """A token of which a library would not sign the header."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims(**changed))]
    text = b".".join(parts)
    return (text + b"." + base64.urlsafe_b64encode(signature(text)).rstrip(b"=")).decode()


def tokens(*names: str, settings: JwtSettings = SETTINGS) -> Tokens:
    return Tokens(settings, KeySets(lambda: key_set(*(names or ("rsa", "ec"))), 300))


@pytest.mark.parametrize(("key", "algorithm"), [("rsa", "RS256"), ("ec", "ES256")])
def test_a_token_of_the_issuer_names_its_sender_and_its_rights(key: str, algorithm: str) -> None:
    sender = tokens().principal_of(token(key, algorithm))
    assert (sender.name, sender.credential) == ("jwt:ann", "jwt")
    assert sender.allows(Access("writer", "acme", "shop"))
    assert not sender.allows(Access("reader", "acme", "lab"))


def test_a_token_with_eddsa_is_accepted_where_the_settings_say_so() -> None:
    settings = SETTINGS.model_copy(update={"algorithms": ("EdDSA",)})
    assert tokens("ed", settings=settings).principal_of(token("ed", "EdDSA")).name == "jwt:ann"


FORGED = {
    "alg none": lambda: forged({"alg": "none", "kid": "rsa"}),
    "alg None": lambda: forged({"alg": "None", "kid": "rsa"}),
    "no alg": lambda: forged({"kid": "rsa"}),
    "alg a list": lambda: forged({"alg": ["RS256"], "kid": "rsa"}),
    "HS256 with the public key": lambda: forged(
        {"alg": "HS256", "kid": "rsa"}, lambda text: hmac.digest(pem("rsa"), text, hashlib.sha256)
    ),
    "RS256 without a signature": lambda: forged({"alg": "RS256", "kid": "rsa"}),
    "signed with another key": lambda: token("rsa2", headers={"kid": "rsa"}),
    "an unknown key": lambda: token("rsa2"),
    "a key that it brings itself": lambda: token("rsa2", headers={"jwk": public("rsa2")}),
    "a set that it names itself": lambda: token("rsa2", headers={"jku": "https://evil.example.com/jwks"}),
    "RS256 with a key for ES256": lambda: token("rsa2", headers={"kid": "ec"}),
    "an algorithm that is not pinned": lambda: token("rsa", "RS512"),
    "PSS where PKCS is pinned": lambda: token("rsa", "PS256"),
    "critical extensions": lambda: token(headers={"crit": ["x"], "x": 1}),
    "an unencoded body": lambda: forged({"alg": "RS256", "kid": "rsa", "b64": False}),
    "expired": lambda: token(exp=time.time() - 31),
    "without an end": lambda: token(exp=None),
    "not valid yet": lambda: token(nbf=time.time() + 60),
    "made in the future": lambda: token(iat=time.time() + 60),
    "another audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=None),
    "another issuer": lambda: token(iss="https://evil.example.com/"),
    "an issuer that begins alike": lambda: token(iss=ISSUER + "x"),
    "no issuer": lambda: token(iss=None),
    "no sender": lambda: token(sub=None),
    "an empty sender": lambda: token(sub=""),
    "a sender with a line break": lambda: token(sub="ann\nadmin"),
    "not a token": lambda: "abc",
    "two parts": lambda: "a.b",
    "four parts": lambda: token() + ".x",
    "too long": lambda: token(x="y" * 20_000),
    "changed claims": lambda: ".".join([token().split(".")[0], forged({}).split(".")[1], token().split(".")[2]]),
}


@pytest.mark.parametrize("how", FORGED)
def test_any_other_token_is_refused(how: str) -> None:
    text = FORGED[how]()
    with pytest.raises(Unauthenticated) as refused:
        tokens().principal_of(text)
    assert text not in refused.value.message
    assert len(refused.value.message) < 200


def test_clocks_may_differ_a_little() -> None:
    tokens().principal_of(token(exp=time.time() - 20, iat=time.time() + 20, nbf=time.time() + 20))


def test_a_symmetric_key_in_the_set_of_the_issuer_is_never_used() -> None:
    secret = {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(b"s" * 32).decode(), "alg": "HS256"}
    keys = parse(json.dumps({"keys": [secret, public("rsa"), public("ec", use="enc")]}).encode())
    assert set(keys) == {"rsa", None}
    settings = SETTINGS.model_copy(update={"algorithms": ("RS256", "HS256")})
    with pytest.raises(SettingsError, match="HS256 cannot be accepted"):
        Tokens(settings, KeySets(lambda: b"", 300))


def test_a_key_that_is_for_one_algorithm_is_not_used_for_another() -> None:
    settings = SETTINGS.model_copy(update={"algorithms": ("RS256", "RS512")})
    sets = KeySets(lambda: json.dumps({"keys": [public("rsa", alg="RS512")]}).encode(), 300)
    with pytest.raises(Unauthenticated):
        Tokens(settings, sets).principal_of(token())


@pytest.mark.parametrize(
    ("given", "granted"),
    [
        ({"roles": ["reader:acme"]}, ["reader:acme"]),
        ({"roles": "reader:acme writer:lab"}, ["reader:acme", "writer:lab"]),
        ({"roles": ["writer"], "tenants": ["acme", "lab"]}, ["writer:acme", "writer:lab"]),
        ({"roles": ["writer"]}, []),
        ({"roles": ["writer"], "tenants": ["*"]}, ["writer:*"]),
        ({"roles": ["other-app:admin", "owner", "admin:../x", 7, "reader:acme"]}, ["reader:acme"]),
        ({"roles": {"admin": True}}, []),
        ({"roles": None, "tenants": ["acme"]}, []),
    ],
)
def test_claims_become_rights_and_what_is_not_understood_gives_none(given: dict[str, Any], granted: list[str]) -> None:
    assert [str(grant) for grant in tokens().principal_of(token(**given)).grants] == granted


def test_what_policies_can_use_of_a_token_is_kept_and_nothing_else() -> None:
    sender = tokens().principal_of(
        token(region="EU", level=3, share=0.25, on=True, teams=["a", "b"], at={"x": 1}, mixed=["a", 1], nothing=None)
    )
    own = {"iss", "aud", "exp", "iat", "nbf", "sub", "roles", "tenants"}
    kept = {name: value for name, value in sender.claims.items() if name not in own}
    assert kept == {"region": "EU", "level": 3, "share": Decimal("0.25"), "on": True, "teams": ["a", "b"]}


def test_roles_that_mean_nothing_to_firn_are_kept_for_policies_and_give_no_rights() -> None:
    sender = tokens().principal_of(token(roles=["support", "reader", "owner:acme", "admin:"], tenants=["acme"]))
    assert [str(grant) for grant in sender.grants] == ["reader:acme"]
    assert sender.other_roles == ("support", "owner:acme", "admin:")
    assert sender.roles_in("acme", "shop") == ["reader", "support", "owner:acme", "admin:"]
    # Without a tenant a plain role is no role at all.
    assert tokens().principal_of(token(roles=["reader"], tenants=[])).roles_in("acme", "shop") == []


def test_the_claims_have_the_names_of_the_settings() -> None:
    named = {"principal_claim": "email", "roles_claim": "firn_roles", "tenants_claim": "org"}
    found = tokens(settings=SETTINGS.model_copy(update=named)).principal_of(
        token(email="ann@example.com", firn_roles=["admin"], org=["acme"])
    )
    assert (found.name, [str(grant) for grant in found.grants]) == ("jwt:ann@example.com", ["admin:acme"])


class Issuer:
    """Serves a set of keys, or fails."""

    def __init__(self, *names: str) -> None:
        self.names: tuple[str, ...] | None = names
        self.reads = 0
        self.now = 0.0

    def read(self) -> bytes:
        self.reads += 1
        if self.names is None:
            raise ConnectionRefusedError
        return key_set(*self.names)

    def sets(self) -> KeySets:
        return KeySets(self.read, 300, keep_s=3600, monotonic=lambda: self.now)


def test_a_new_key_is_found_by_its_id_and_a_removed_one_is_forgotten() -> None:
    issuer = Issuer("rsa")
    sets = issuer.sets()
    assert sets.find("rsa") is not None
    issuer.names = ("rsa2",)
    issuer.now += 20
    assert sets.find("rsa2") is not None
    assert sets.find("rsa") is None


def test_unknown_ids_do_not_make_the_set_be_read_again_and_again() -> None:
    issuer = Issuer("rsa")
    sets = issuer.sets()
    for i in range(1000):
        assert sets.find(f"unknown {i}") is None
    assert issuer.reads == 1
    issuer.now += 20
    sets.find("unknown")
    assert issuer.reads == 2


def test_a_set_is_read_again_after_its_time_and_not_before() -> None:
    issuer = Issuer("rsa")
    sets = issuer.sets()
    sets.find("rsa")
    issuer.now += 299
    sets.find("rsa")
    assert (issuer.reads, sets.is_known("rsa")) == (1, True)
    issuer.now += 2
    assert not sets.is_known("rsa")
    sets.find("rsa")
    assert issuer.reads == 2


def test_while_the_issuer_is_silent_its_keys_stay_valid_for_a_time() -> None:
    issuer = Issuer("rsa")
    sets = issuer.sets()
    sets.find("rsa")
    issuer.names = None
    issuer.now += 3599
    assert sets.find("rsa") is not None
    issuer.now += 20
    with pytest.raises(Unavailable):
        sets.find("rsa")


def test_without_a_set_nobody_is_let_in() -> None:
    issuer = Issuer()
    issuer.names = None
    with pytest.raises(Unavailable):
        issuer.sets().find("rsa")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 7}', b"\xff"])
def test_what_is_not_a_set_is_not_taken_for_one(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"FIRN_AUTH__JWT__ISSUER": ISSUER}, "either jwks_file or jwks_url"),
        ({"FIRN_AUTH__JWT__JWKS_URL": "http://issuer.example.com/jwks"}, "must begin with https://"),
        ({"FIRN_AUTH__JWT__JWKS_FILE": "/none"}, "cannot be read as a JSON Web Key Set"),
        ({"FIRN_AUTH__JWT__JWKS_URL": "https://issuer.example.com/jwks"}, "auth.jwt.issuer is not set"),
    ],
)
def test_settings_that_are_not_complete_keep_the_service_from_starting(environ: dict[str, str], says: str) -> None:
    from service.identity.compose import compose_identities

    with pytest.raises(SettingsError, match=says):
        compose_identities(load({"FIRN_AUTH__REQUIRED": "true", **environ}), None)  # type: ignore[arg-type]


def test_a_set_can_be_in_a_file(tmp_path: Any) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set("rsa"))
    assert set(parse(reader(path, None)())) == {"rsa", None}
