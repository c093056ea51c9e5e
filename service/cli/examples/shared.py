"""What the examples of commands share: what happens before them, and the ids in them."""

from service.cli.command import CommandExample, Request

BACKUP = "backup-20260301T100000000Z-delete-1f0c9a7e"
REQUEST = "84f0f3c9b1a04a6d8f6c5e1d2b7a9f30"
FIRST, SECOND = "4113542698571253187", "1255905574727858846"
KEY = "4fW9kQ0aBz"
JOB = "0fa7ded8260a46d28fdaf65749030929"
PLACEHOLDERS = {
    BACKUP: (1, "backup"),
    REQUEST: (2, "metadata.request_id"),
    FIRST: (2, "metadata.snapshot_id"),
    SECOND: (1, "metadata.snapshot_id"),
    JOB: (1, "job_id"),
    KEY: (1, "key_id"),
}
"""Sample ids. Each is replaced by a field of the nth last response to an example's setup: (n, path of the field)."""


def write(*ids: int) -> Request:
    """A WRITE of orders."""
    customers = ("Ann", "Bo", "Cleo")
    records = [
        {"id": i, "customer": customers[i % 3], "amount": f"{i}.50", "placed_at": f"2026-03-{i:02}T10:00:00Z"}
        for i in ids
    ]
    return {"operation": "WRITE", "namespace": "shop", "table": "orders", "records": records}


CREATE = "firn table create orders.yaml"
ORDERS = (CREATE, write(1, 2, 3))
SMALL_FILES: tuple[str | Request, ...] = (CREATE, *(write(i) for i in range(1, 5)))
TWO_SNAPSHOTS = (*ORDERS, write(4))
DELETE: Request = {"operation": "DELETE", "namespace": "shop", "table": "orders", "filter": {"id": 1}}
BACKED_UP: tuple[str | Request, ...] = (*ORDERS, {**DELETE, "create_backup": True})
NIGHTLY = "firn schedule create nightly --namespace shop --table orders --cron '0 2 * * *'"
SCHEDULED = (*ORDERS, NIGHTLY)
COMPACT: Request = {"operation": "COMPACT", "namespace": "shop", "table": "orders", "async": True}
STARTED = (*ORDERS, COMPACT)
ENDED = (*STARTED, f"firn job wait {JOB}")
ENDED_JOB = "job      …\nkind     COMPACT\ntable    shop.orders\nstate    done\nphase    …\nstarted  …\nended    …\n"


def example(
    title: str, line: str, output: str = "", setup: tuple[str | Request, ...] = ORDERS, stdin: str = ""
) -> CommandExample:
    """An example with a table of three rows, unless `setup` says otherwise."""
    return CommandExample(title, line, output, setup, stdin)
