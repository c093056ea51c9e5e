"""The names of what a tenant has: for completion, and for `firn sql`."""

from dataclasses import dataclass, field
from typing import Any

from service.cli.command import Response
from service.cli.connection.lists import whole_list
from service.cli.connection.remote import Connection


class NamesUnknown(Exception):
    """The service did not say the names; the message says why."""


OF_TENANT: dict[str, Any] = {"scope": "tenant"}
"""The fields of a request for a list of all of a tenant's jobs or schedules."""


@dataclass
class Names:
    """Reads names from a service. Each list is read once, when it is first needed."""

    connection: Connection
    tenant: str
    namespace: str = "default"
    """The namespace of the names that have none."""
    _known: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    def namespaces(self) -> list[str]:
        return self._list("LIST_NAMESPACES", "namespaces")

    def tables_in(self, namespace: str) -> list[str]:
        return self._list("LIST_TABLES", "tables", namespace=namespace)

    def tables(self) -> list[str]:
        """All tables as `namespace.table`, and those of the namespace of the prompt also without it."""
        found = {f"{namespace}.{name}" for namespace in self.namespaces() for name in self.tables_in(namespace)}
        prefix = f"{self.namespace}."
        return sorted(found | {name.removeprefix(prefix) for name in found if name.startswith(prefix)})

    def columns(self, table: str) -> list[str]:
        """The columns of a table, which is named as `table` or `namespace.table`."""
        key = ("columns", table)
        if key not in self._known:
            response = self._send("DESCRIBE_TABLE", **self._address(table))
            self._known[key] = list(response["description"]["schema"]["fields"])
        return self._known[key]

    def backups(self, table: str) -> list[str]:
        return self._list("LIST_BACKUPS", "backups", "name", **self._address(table))

    def jobs(self) -> list[str]:
        return self._list("LIST_JOBS", "jobs", "id", **OF_TENANT)

    def schedules(self) -> list[str]:
        return self._list("LIST_SCHEDULES", "schedules", "name", **OF_TENANT)

    def forget(self) -> None:
        """Read every list again when it is needed next."""
        self._known.clear()

    def _address(self, table: str) -> dict[str, str]:
        namespace, _, name = table.replace("/", ".").rpartition(".")
        return {"namespace": namespace or self.namespace, "table": name}

    def _list(self, operation: str, items: str, name: str = "", **fields: str) -> list[str]:
        """The items of a list, or their field `name`."""
        key = (operation, *fields.values())
        if key not in self._known:
            found = self._send(operation, items, **fields)[items]
            self._known[key] = [item[name] if name else item for item in found]
        return self._known[key]

    def _send(self, operation: str, *lists: str, **fields: Any) -> Response:
        """The response, with all pages of the lists in it."""
        request = {"operation": operation, "tenant_id": self.tenant, **fields}
        response = whole_list(self.connection.send, request, lists)
        if not response["success"]:
            raise NamesUnknown(f"{response['error']['code']}: {response['error']['message']}")
        return response
