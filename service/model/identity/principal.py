"""Who sends a request, and what they may do: a role in one namespace, in one tenant, or in all tenants."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Literal, Self, get_args

from service.errors import Forbidden, InvalidRequest
from service.model.names import check_name

Role = Literal["reader", "writer", "admin"]
Claim = bool | int | Decimal | str | list[str]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role may do all that those before it may do."""
EVERY = "*"
TOKEN = "jwt"
"""The credential of principals of tokens."""
_FORM = "reader, writer or admin, or one of them with a place, as in writer:acme, writer:acme/shop or admin:*"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")


@dataclass(frozen=True)
class Access:
    """What a request needs: a role in a namespace of a tenant."""

    role: Role
    tenant: str
    namespace: str | None
    """None: in all namespaces of the tenant."""
    somewhere: bool = False
    """Whether the role in any namespace of the tenant is enough; the operation checks the rest itself."""


@dataclass(frozen=True)
class Grant:
    """A role, in one namespace, in one tenant, or in all tenants."""

    role: Role
    tenant: str = EVERY
    namespace: str | None = None

    @classmethod
    def parse(cls, text: str, field: str, tenant: str | None = None) -> Self:
        """Read `writer:acme/shop`. `tenant` is the one that a role without a tenant means."""
        role, colon, place = text.partition(":")
        found, slash, namespace = place.partition("/")
        if not colon and tenant is not None:
            found = tenant
        if role not in ROLES or (slash and found == EVERY) or (found != EVERY and not found):
            raise InvalidRequest.at(field, f"{text[:200]!r} is not a role; write {_FORM}")
        if found != EVERY:
            check_name(found, field)
        return cls(role, found, check_name(namespace, field) if slash else None)

    def covers(self, access: Access) -> bool:
        if ROLES.index(self.role) < ROLES.index(access.role) or self.tenant not in (EVERY, access.tenant):
            return False
        return access.somewhere or self.namespace in (None, access.namespace)

    def __str__(self) -> str:
        return f"{self.role}:{self.tenant}" + (f"/{self.namespace}" if self.namespace is not None else "")


@dataclass(frozen=True)
class Principal:
    """The sender of a request: a person or a program, with its rights."""

    name: str
    grants: tuple[Grant, ...] = ()
    credential: str = ""
    """The public id of its API key, `jwt`, or `local` for Firn itself; empty for none."""
    claims: Mapping[str, Claim] = field(default_factory=dict, hash=False)
    """What its token says of it, for the policies of tables."""
    other_roles: tuple[str, ...] = ()
    """The roles of its token that mean nothing to Firn itself; the policies of tables can name them."""

    def roles_in(self, tenant: str, namespace: str) -> list[str]:
        """All of its roles in a namespace, those of its token included."""
        return [*(role for role in ROLES if self.may(role, tenant, namespace)), *self.other_roles]

    def attributes_in(self, tenant: str, namespace: str) -> dict[str, Any]:
        """What the policies of tables in a namespace can compare columns with."""
        tenants = {grant.tenant for grant in self.grants}
        found: dict[str, Any] = {f"claims.{name}": value for name, value in self.claims.items()}
        found |= {"name": self.name, "id": _local_name(self.name), "roles": self.roles_in(tenant, namespace)}
        return found | ({"tenant": tenants.pop()} if len(tenants) == 1 and EVERY not in tenants else {})

    def may(self, role: Role, tenant: str, namespace: str | None = None, *, somewhere: bool = False) -> bool:
        """Whether it has a role in a namespace; without one, in all namespaces of the tenant."""
        return self.allows(Access(role, tenant, namespace, somewhere))

    def allows(self, access: Access) -> bool:
        return any(grant.covers(access) for grant in self.grants)

    def check(self, access: Access) -> None:
        """Raise Forbidden if it may not do this. The error is the same whether the tenant or the namespace exists."""
        if self.allows(access):
            return
        where = f"tenant {access.tenant!r}"
        if access.tenant == EVERY:
            where = "all tenants"
        elif access.namespace is not None:
            where = f"namespace {access.namespace!r} of {where}"
        raise Forbidden(
            f"{self.name!r} may not do this: it needs the role {access.role} in {where}; use another credential, or "
            "ask an administrator for the role",
            field="tenant_id" if not self.may("reader", access.tenant, somewhere=True) else "namespace",
        )

    def dumps(self) -> str | None:
        """As JSON, for what runs later with its rights; None for a sender who was not authenticated.

        Without claims, which may be personal: they only decide which rows a query shows.
        """
        if self is ANYONE:
            return None
        made = {"principal": self.name, "credential": self.credential, "roles": [str(one) for one in self.grants]}
        return json.dumps(made | ({"other_roles": list(self.other_roles)} if self.other_roles else {}))

    @classmethod
    def loads(cls, text: str) -> Self:
        made = json.loads(text)
        grants = tuple(Grant.parse(role, "roles") for role in made["roles"])
        return cls(made["principal"], grants, made["credential"], other_roles=tuple(made.get("other_roles", ())))

    def may_grant(self, grants: Iterable[Grant]) -> bool:
        """Whether it is an administrator everywhere that these grants reach."""
        return all(self.may("admin", grant.tenant, grant.namespace) for grant in grants)


def read_claim(value: Any) -> Claim | None:
    """A claim of a token as a value that columns can be compared with; None for others, such as objects."""
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else None
    if isinstance(value, bool | int | str | Decimal):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return None


def _local_name(name: str) -> str:
    """A name without what tells kinds of principals apart: `loader` of `acme/loader`, `ann` of `jwt:ann`."""
    return name.removeprefix(f"{TOKEN}:") if name.startswith(f"{TOKEN}:") else name.partition("/")[2] or name


def check_principal(name: str, field: str) -> str:
    """Return the name of a principal with API keys, or raise InvalidRequest if it is not valid."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest.at(field, f"{name[:80]!r} is not a name; use 1 to 100 letters, digits, '_', '-', '.', '@'")
    return name


_ALL = (Grant("admin"),)
ANYONE = Principal("anyone", _ALL)
"""Every sender while authentication is off. While it is on, a sender who has not been authenticated yet."""
LOCAL = Principal("local", _ALL, "local")
"""A command on the machine that runs requests in its own process: who can open the ledger may do everything."""
