"""Rights: a role in one namespace, in one tenant, or everywhere, and nothing beyond."""

import pytest

from service.errors import Forbidden, InvalidRequest
from service.model.identity.principal import ANYONE, Access, Grant, Principal


def having(*roles: str) -> Principal:
    return Principal("acme/ann", tuple(Grant.parse(role, "roles") for role in roles))


@pytest.mark.parametrize(
    ("role", "needed", "allowed"),
    [
        ("reader:acme", Access("reader", "acme", "shop"), True),
        ("reader:acme", Access("reader", "acme", None), True),
        ("reader:acme", Access("writer", "acme", "shop"), False),
        ("writer:acme", Access("reader", "acme", "shop"), True),
        ("admin:acme", Access("writer", "acme", "shop"), True),
        ("admin:acme", Access("reader", "Acme", "shop"), False),
        ("admin:acme", Access("reader", "acme2", "shop"), False),
        ("admin:acme", Access("reader", "*", None), False),
        ("writer:acme/shop", Access("writer", "acme", "shop"), True),
        ("writer:acme/shop", Access("reader", "acme", "Shop"), False),
        ("writer:acme/shop", Access("reader", "acme", None), False),
        ("writer:acme/shop", Access("reader", "acme", None, somewhere=True), True),
        ("writer:acme/shop", Access("reader", "other", None, somewhere=True), False),
        ("reader:*", Access("reader", "acme", None), True),
        ("reader:*", Access("reader", "*", None), True),
        ("reader:*", Access("writer", "acme", "shop"), False),
    ],
)
def test_a_role_reaches_as_far_as_it_says(role: str, needed: Access, allowed: bool) -> None:
    assert having(role).allows(needed) == allowed
    assert not Principal("nobody").allows(needed)
    assert ANYONE.allows(needed)


@pytest.mark.parametrize("text", ["reader:acme", "writer:acme/shop", "admin:*"])
def test_a_role_is_written_as_it_is_read(text: str) -> None:
    assert str(Grant.parse(text, "roles")) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "owner:acme", "READER:acme", "reader:", "reader:acme/", "reader:*/shop", "reader:/shop", "reader"),
        *("reader:acme/shop/orders", "reader:../acme", "reader:acme\0", "reader:acme ", "reader:ａcme", "reader:**"),
    ],
)
def test_what_is_no_role_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Grant.parse(text, "roles")


def test_a_refusal_depends_only_on_what_was_asked() -> None:
    with pytest.raises(Forbidden) as refused:
        having("reader:acme").check(Access("reader", "other", "shop"))
    assert refused.value.message.startswith("'acme/ann' may not do this: it needs the role reader in namespace 'shop'")


def test_a_principal_is_stored_with_its_rights() -> None:
    principal = Principal("jwt:ann", (Grant("writer", "acme", "shop"), Grant("reader")), "jwt")
    text = principal.dumps()
    assert text is not None
    assert Principal.loads(text) == principal
    assert ANYONE.dumps() is None
