"""What arguments mean."""

from collections.abc import Iterable
from typing import Any

from service.cli.command import Args, Misused, Request

_DIGITS = 19  # of a snapshot's id
_NUMBERS = {"bucket": "num_buckets", "truncate": "width"}


def tenant_of(args: Args) -> str:
    """The one tenant that a command is about."""
    tenant: str = args.tenant or args.usual_tenant
    if "," in tenant:
        raise Misused(f"FIRN_TENANT names several tenants ({tenant}); say with --tenant which is meant")
    return tenant


def full_name(request: Request) -> str:
    """A table as people call it."""
    return f"{request['namespace']}.{request['table']}"


def partition_of(fields: list[str]) -> dict[str, Any]:
    """A partitioning, of its fields as the command line has them."""
    return {"partitions": [_partition_field(text) for text in fields]}


def _partition_field(text: str) -> dict[str, Any]:
    field, *rest = text.split(":")
    if not field or len(rest) > 2:
        raise Misused(f"--partition-by {text!r} is no partition field; write it as placed_at:month or id:bucket:16")
    if not rest:
        return {"field": field}
    transform = rest[0]
    if len(rest) == 1:
        return {"field": field, "transform": transform}
    number = number_of(rest[1])
    if transform not in _NUMBERS or number is None:
        raise Misused(f"--partition-by {text!r}: only bucket and truncate take a number, as in id:bucket:16")
    return {"field": field, "transform": transform, _NUMBERS[transform]: number}


def number_of(text: str) -> int | None:
    """The number that a text is; None where it is none, or has more digits than any that is meant here."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def overlaid(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One object laid over another, and the objects in them likewise."""
    both = {name for name in under if isinstance(under[name], dict) and isinstance(over.get(name), dict)}
    return {**under, **over, **{name: overlaid(under[name], over[name]) for name in both}}


def key_of(text: str) -> list[str]:
    """The columns of a key. Nothing at all means none; commas alone are a mistake."""
    names = listed(text)
    if text.strip() and not names:
        raise Misused(f"--primary-key {text!r} names no column; write it as tenant,id, or as '' for no key")
    return names


def listed(text: str | None) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def assignments(pairs: list[str] | None, option: str) -> dict[str, str]:
    """`name=value` of an option that may be repeated."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Misused(f"{option} {pair!r}: write it as name=value")
        if name in found:
            raise Misused(f"{option} {name}=… stands there twice; leave one out")
        found[name] = value
    return found


def hint(name: str, known: Iterable[str], *, all_of_them: bool = True) -> str:
    """Which of the known ones was meant, or all of them."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(known)}" if all_of_them else ""
