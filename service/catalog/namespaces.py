"""Create and drop namespaces. The creation of a table creates its namespace too."""

from contextlib import suppress

from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

from service.catalog.refusals import namespace_exists_already, namespace_not_empty, namespace_not_found
from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.model.names import namespace_identifier


def namespace_exists(catalog: Catalog, tenant: str, namespace: str) -> bool:
    with translated():
        return catalog.iceberg.namespace_exists((namespace_identifier(tenant, namespace),))


def check_can_create(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Raise NamespaceExists if there is such a namespace."""
    if namespace_exists(catalog, tenant, namespace):
        raise namespace_exists_already(namespace)


def create_namespace(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Create a namespace; NamespaceExists if there is one."""
    with translated():
        if not catalog.ensure_namespace(namespace_identifier(tenant, namespace)):
            raise namespace_exists_already(namespace)


def check_can_drop(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Raise NamespaceNotFound, or NamespaceNotEmpty with the names of its tables, if a namespace cannot be dropped."""
    if not namespace_exists(catalog, tenant, namespace):
        known = [name for _, name in catalog.list_namespaces(tenant)]
        raise namespace_not_found(tenant, namespace, known)
    if tables := catalog.list_tables(tenant, namespace):
        raise namespace_not_empty(namespace, tables)


def drop_namespace(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Drop a namespace; raises as `check_can_drop` does."""
    check_can_drop(catalog, tenant, namespace)
    with translated():
        with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
            catalog.iceberg.drop_namespace((namespace_identifier(tenant, namespace),))
            return
        check_can_drop(catalog, tenant, namespace)
    raise namespace_not_empty(namespace, [])
