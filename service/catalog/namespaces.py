"""Create and drop namespaces. The creation of a table creates its namespace too."""

from contextlib import suppress

from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

from service.catalog.refusals import namespace_not_empty, namespace_not_found
from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.model.names import namespace_identifier


def create_namespace(catalog: Catalog, tenant: str, namespace: str) -> bool:
    """Create a namespace; return False if it already exists."""
    with translated():
        return catalog.ensure_namespace(namespace_identifier(tenant, namespace))


def drop_namespace(catalog: Catalog, tenant: str, namespace: str) -> None:
    """Drop a namespace; NamespaceNotEmpty, with the names of its tables, if it holds some."""
    identifier = (namespace_identifier(tenant, namespace),)
    with translated():
        with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
            tables = catalog.list_tables(tenant, namespace)
            if tables:
                raise namespace_not_empty(namespace, tables)
            catalog.iceberg.drop_namespace(identifier)
            return
        if not catalog.iceberg.namespace_exists(identifier):
            known = [name for _, name in catalog.list_namespaces(tenant)]
            raise namespace_not_found(tenant, namespace, known)
    raise namespace_not_empty(namespace, catalog.list_tables(tenant, namespace))
