"""Parse the values of arguments."""

from collections.abc import Iterable
from typing import Any

from service.cli.command import Args, Request, UsageError

_MAX_DIGITS = 19  # of a snapshot's id
_NUMBER_FIELDS = {"bucket": "num_buckets", "truncate": "width"}


def single_tenant(args: Args) -> str:
    """The one tenant that a command concerns."""
    tenant: str = args.tenant or args.default_tenant
    if "," in tenant:
        raise UsageError(f"FIRN_TENANT names several tenants ({tenant}); choose one with --tenant")
    return tenant


def address_of(request: Request) -> Request:
    """The fields of a request that say which table it is about."""
    return {name: request[name] for name in ("tenant_id", "namespace", "table")}


def full_name(request: Request) -> str:
    """The name of a request's table with its namespace."""
    return f"{request['namespace']}.{request['table']}"


def split_name(text: str) -> tuple[str | None, str]:
    """The namespace, if there is one, and the name in `orders`, `shop.orders` or `shop/orders`."""
    parts = text.replace("/", ".").split(".")
    if len(parts) == 1:
        return None, text
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"{text!r} is not the name of a table; write it as orders, shop.orders or shop/orders")
    return parts[0], parts[1]


def named_table(text: str, args: Args) -> Request:
    """The namespace, if one is given, and the name of a table that an argument names."""
    namespace, name = split_name(text)
    if namespace and args.namespace and namespace != args.namespace:
        raise UsageError(f"{text} is not in the namespace {args.namespace}; leave --namespace out")
    namespace = namespace or args.namespace
    return {"table": name, **({"namespace": namespace} if namespace else {})}


def name_beside(request: Request, field: str) -> Request:
    """The request, whose `field` names another table of the same namespace: without the namespace."""
    if field not in request:
        return request
    namespace, name = split_name(request[field])
    if namespace not in (None, request["namespace"]):
        raise UsageError(f"{request[field]} is in another namespace than {full_name(request)}; name one in the same")
    return {**request, field: name}


def parse_partition(fields: list[str]) -> dict[str, Any]:
    """A partitioning from fields such as `day`, `placed_at:month` and `id:bucket:16`."""
    return {"partitions": [_parse_partition_field(text) for text in fields]}


def _parse_partition_field(text: str) -> dict[str, Any]:
    field, *rest = text.split(":")
    if not field or len(rest) > 2:
        raise UsageError(
            f"--partition-by {text!r} is not a partition field; write it as placed_at:month or id:bucket:16"
        )
    parsed: dict[str, Any] = dict(zip(("field", "transform"), (field, *rest), strict=False))
    if len(rest) == 2:
        number = parse_number(rest[1])
        if rest[0] not in _NUMBER_FIELDS or number is None:
            raise UsageError(f"--partition-by {text!r}: only bucket and truncate take a number, as in id:bucket:16")
        parsed[_NUMBER_FIELDS[rest[0]]] = number
    return parsed


def parse_number(text: str) -> int | None:
    """A whole number; None if the text is none, or is longer than a snapshot's id."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The base with the changes applied. Objects that are in both are merged the same way."""
    both = {name for name in base if isinstance(base[name], dict) and isinstance(changes.get(name), dict)}
    return {**base, **changes, **{name: merge(base[name], changes[name]) for name in both}}


def parse_key(text: str) -> list[str]:
    """The columns of a primary key; none for an empty text. Commas alone are a mistake."""
    names = split_list(text)
    if text.strip() and not names:
        raise UsageError(f"--primary-key {text!r} names no column; write it as tenant,id, or as '' for no key")
    return names


def split_list(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_assignments(pairs: list[str], option: str) -> dict[str, str]:
    """The `name=value` pairs of an option that may be repeated."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r}: write it as name=value")
        if name in values:
            raise UsageError(f"{option} {name}=… is given twice; leave one out")
        values[name] = value
    return values


def suggestion(name: str, known: Iterable[str], *, list_all: bool = True) -> str:
    """The known name that is most like this one, or a list of all."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"choose from {', '.join(known)}" if list_all else ""
