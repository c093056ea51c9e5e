"""JSON Web Tokens: whether one is valid, and whom it is about.

What is accepted is pinned by the settings: issuer, audience, algorithms. The token only chooses among the keys of the
issuer by its `kid`; where the keys are (`jku`, `x5u`), or which key it brings itself (`jwk`), is ignored.
"""

from typing import Any, Protocol

import jwt
from jwt import PyJWK

from service.errors import InvalidRequest, Unauthenticated
from service.model.identity.principal import ROLES, TOKEN, Grant, Principal, read_claim
from service.settings import SettingsError
from service.settings.security import JwtSettings

# Of each, the kind of key it needs: a token that names another algorithm than its key has is refused.
ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
_LONGEST = 16_384
_MOST_ROLES = 200
_LONGEST_NAME = 200
PREFIX = "jwt:"
"""Begins the names of principals of tokens, so that none can be that of a principal with API keys."""


class FindsKeys(Protocol):
    """The public keys of the issuer."""

    def is_known(self, key_id: str | None) -> bool: ...
    def find(self, key_id: str | None) -> PyJWK | None: ...


class Tokens:
    """Checks tokens by the settings; SettingsError if these are not complete."""

    def __init__(self, settings: JwtSettings, keys: FindsKeys) -> None:
        for name in ("issuer", "audience"):
            if not getattr(settings, name):
                raise SettingsError(f"auth.jwt.{name} is not set (FIRN_AUTH__JWT__{name.upper()}); tokens need it")
        wrong = [name for name in settings.algorithms if name not in ALGORITHMS]
        if wrong or not settings.algorithms:
            raise SettingsError(
                f"auth.jwt.algorithms: {', '.join(wrong) or 'none'} cannot be accepted; use {', '.join(ALGORITHMS)}"
            )
        self._settings = settings
        self._keys = keys

    def needs_reading(self, token: str) -> bool:
        """Whether the key of a token has to be read from the issuer first."""
        return not self._keys.is_known(self._header(token).get("kid"))

    def principal_of(self, token: str) -> Principal:
        """Whom a token is about; Unauthenticated if it is not valid."""
        header = self._header(token)
        key = self._keys.find(header.get("kid"))
        algorithm = header["alg"]
        if key is None or ALGORITHMS[algorithm] != key.key_type or key._jwk_data.get("alg", algorithm) != algorithm:
            raise _refused("it is signed with a key that its issuer does not have")
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud"], "verify_iat": True},
            )
        except jwt.ExpiredSignatureError as e:
            raise _refused("it has expired") from e
        except jwt.InvalidSignatureError as e:
            raise _refused("its signature is wrong") from e
        except jwt.InvalidAudienceError as e:
            raise _refused("it is for another audience") from e
        except jwt.InvalidIssuerError as e:
            raise _refused("it is from another issuer") from e
        except jwt.ImmatureSignatureError as e:
            raise _refused("it is not valid yet") from e
        except (jwt.PyJWTError, ValueError, TypeError) as e:
            raise _refused("its claims cannot be used") from e
        return self._principal(claims)

    def _header(self, token: str) -> dict[str, Any]:
        if len(token) > _LONGEST:
            raise _refused("it is too long")
        try:
            header: dict[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as e:
            raise _refused("it cannot be read") from e
        if header.get("alg") not in self._settings.algorithms:
            raise _refused("its algorithm is not accepted here")
        # Extensions that change what is signed, or that must be understood.
        if "crit" in header or "b64" in header:
            raise _refused("its header has extensions that are not supported")
        return header

    def _principal(self, claims: dict[str, Any]) -> Principal:
        name = claims.get(self._settings.principal_claim)
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise _refused(f"its claim {self._settings.principal_claim} does not name its sender")
        known = {key: read for key, value in claims.items() if (read := read_claim(value)) is not None}
        grants, others = self._roles(claims)
        return Principal(PREFIX + name, grants, TOKEN, known, others)

    def _roles(self, claims: dict[str, Any]) -> tuple[tuple[Grant, ...], tuple[str, ...]]:
        """The roles of a token: complete ones such as `writer:acme/shop`, or plain ones in each of its tenants.

        Others mean something to other programs, and to policies of tables that name them.
        """
        tenants = _texts(claims.get(self._settings.tenants_claim))
        grants: dict[Grant, None] = {}
        others: dict[str, None] = {}
        for role in _texts(claims.get(self._settings.roles_claim)):
            written = [f"{role}:{tenant}" for tenant in tenants] if role in ROLES else [role]
            for text in written:
                try:
                    grants[Grant.parse(text, "roles")] = None
                except InvalidRequest:
                    others[text] = None
        return tuple(grants)[:_MOST_ROLES], tuple(others)[:_MOST_ROLES]


def _texts(claim: Any) -> list[str]:
    """A claim that is a list of texts, or one text with spaces, as `scope` has it."""
    if isinstance(claim, str):
        return claim.split()
    return [each for each in claim if isinstance(each, str)] if isinstance(claim, list) else []


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the token is not valid: {why}; get a new one from its issuer")
