"""Namespaces of a tenant: made and dropped by themselves, beside those that a table's creation makes."""

from contextlib import suppress

from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.errors import NamespaceNotEmpty, NamespaceNotFound, nearest
from service.names import namespace_identifier

_TOLD = 10


def create_namespace(catalog: Catalog, tenant: str, namespace: str) -> bool:
    """Make a namespace; false where it is there already."""
    with translated():
        return catalog.ensure_namespace(namespace_identifier(tenant, namespace))


def drop_namespace(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Forget a namespace; NamespaceNotEmpty, which names what is in it, where it holds tables."""
    identifier = (namespace_identifier(tenant, namespace),)
    with translated():
        with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
            tables = catalog.list_tables(tenant, namespace)
            if tables:
                raise _not_empty(namespace, tables)
            catalog.iceberg.drop_namespace(identifier)
            return
        if not catalog.iceberg.namespace_exists(identifier):
            raise _missing(catalog, tenant, namespace)
    raise _not_empty(namespace, catalog.list_tables(tenant, namespace))


def _not_empty(namespace: str, tables: list[str]) -> NamespaceNotEmpty:
    if not tables:  # whatever it is, no request can name it
        return NamespaceNotEmpty(
            f"namespace {namespace!r} holds something that another program put there; remove that first",
            field="namespace",
        )
    listed = ", ".join(tables[:_TOLD]) + (f" and {len(tables) - _TOLD} more" if len(tables) > _TOLD else "")
    return NamespaceNotEmpty(
        f"namespace {namespace!r} is not empty: it holds {listed}; drop these first",
        field="namespace",
        details={"tables": tables[:_TOLD], "count": len(tables)},
    )


def _missing(catalog: Catalog, tenant: str, namespace: str) -> NamespaceNotFound:
    known = [name for _, name in catalog.list_namespaces(tenant)]
    near = nearest(namespace, known)
    if near:
        hint = f"did you mean {near!r}?"
    else:
        hint = f"it has {', '.join(known[:_TOLD])}" if known else "it has none yet"
    return NamespaceNotFound(
        f"tenant {tenant!r} has no namespace {namespace!r}; {hint}", field="namespace", suggestion=near
    )
