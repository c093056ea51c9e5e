"""The examples of all commands: help, documents and tests show the same. Each belongs to the command that it calls."""

from service.cli.command import CommandExample, Request

_BACKUP = "backup-20260301T100000000Z-delete-1f0c9a7e"
_REQUEST = "84f0f3c9b1a04a6d8f6c5e1d2b7a9f30"
_FIRST, _SECOND = "4113542698571253187", "1255905574727858846"
_JOB = "0fa7ded8260a46d28fdaf65749030929"
PLACEHOLDERS = {
    _BACKUP: (1, "backup"),
    _REQUEST: (2, "metadata.request_id"),
    _FIRST: (2, "metadata.snapshot_id"),
    _SECOND: (1, "metadata.snapshot_id"),
    _JOB: (1, "job_id"),
}
"""Sample ids. Each is replaced by a field of the nth last response to an example's setup: (n, path of the field)."""


def _write(*ids: int) -> Request:
    """A WRITE of orders."""
    customers = ("Ann", "Bo", "Cleo")
    records = [
        {"id": i, "customer": customers[i % 3], "amount": f"{i}.50", "placed_at": f"2026-03-{i:02}T10:00:00Z"}
        for i in ids
    ]
    return {"operation": "WRITE", "namespace": "shop", "table": "orders", "records": records}


_CREATE = "firn table create orders.yaml"
_ORDERS = (_CREATE, _write(1, 2, 3))
_SMALL_FILES: tuple[str | Request, ...] = (_CREATE, *(_write(i) for i in range(1, 5)))
_TWO_SNAPSHOTS = (*_ORDERS, _write(4))
_DELETE: Request = {"operation": "DELETE", "namespace": "shop", "table": "orders", "filter": {"id": 1}}
_BACKED_UP: tuple[str | Request, ...] = (*_ORDERS, {**_DELETE, "create_backup": True})
_NIGHTLY = "firn schedule create nightly --namespace shop --table orders --cron '0 2 * * *'"
_SCHEDULED = (*_ORDERS, _NIGHTLY)
_COMPACT: Request = {"operation": "COMPACT", "namespace": "shop", "table": "orders", "async": True}
_STARTED = (*_ORDERS, _COMPACT)
_ENDED = (*_STARTED, f"firn job wait {_JOB}")
_ENDED_JOB = "job      …\nkind     COMPACT\ntable    shop.orders\nstate    done\nphase    …\nstarted  …\nended    …\n"


def _example(
    title: str, line: str, output: str = "", setup: tuple[str | Request, ...] = _ORDERS, stdin: str = ""
) -> CommandExample:
    """An example with a table of three rows, unless `setup` says otherwise."""
    return CommandExample(title, line, output, setup, stdin)


EXAMPLES = (
    _example("Create a table from its file", "firn table create orders.yaml", "created shop.orders\n", ()),
    _example(
        "Create one from a schema's file and a properties file",
        "firn table create visits --schema visits.yaml --properties visits.properties --partition-by at:day",
        "created default.visits\n",
        (),
    ),
    _example(
        "Create one that is split by ranges of its first key column",
        "firn table create readings.yaml",
        "created default.readings\nit is split at h, p\n",
        (),
    ),
    _example(
        "Create one unless it exists",
        "firn table create orders.yaml --if-not-exists",
        "shop.orders already exists\n",
        (_CREATE,),
    ),
    _example(
        "List the tables of a namespace",
        "firn table list --namespace shop",
        "orders\nvisits\n",
        (_CREATE, "firn table create visits --namespace shop --schema visits.yaml"),
    ),
    _example(
        "Show the state of all tables",
        "firn table status",
        "NAMESPACE  TABLE   FILES  SMALL     SIZE  COMPACTION\n"
        "shop       orders      1      1  … KiB  not needed\n"
        "1 table, 1 file, 1 small, … KiB; 0 to compact\n",
    ),
    _example(
        "Describe a table",
        "firn table describe orders --namespace shop",
        "table           shop.orders\n"
        "description     one row per order\n"
        "rows            3\n"
        "files           1, 1 small\n"
        "size            … KiB\n"
        "snapshots       1, the last …\n"
        "primary key     id\n"
        "partitioned by  month(placed_at)\n"
        "compression     zstd\n"
        "compaction      recommend\n"
        "\n"
        "COLUMN     TYPE           REQUIRED\n"
        "id         long           yes\n"
        "customer   string         yes\n"
        "amount     decimal(10,2)  no\n"
        "placed_at  timestamptz    no\n",
    ),
    _example("Rename a table", "firn table rename orders.yaml orders_2025", "renamed shop.orders to orders_2025\n"),
    _example("Drop a table, and be able to restore it", "firn table drop shop.orders --yes", "dropped shop.orders…\n"),
    _example(
        "Drop a table and delete its files without confirmation",
        "firn table drop orders.yaml --purge --yes",
        "dropped shop.orders and deleted its files\n",
    ),
    _example("Delete a table for good", "firn table delete shop.orders --force", "deleted shop.orders\n"),
    _example(
        "Restore a dropped table",
        "firn table restore orders.yaml",
        "restored shop.orders\n",
        (*_ORDERS, "firn table drop orders.yaml --yes"),
    ),
    _example(
        "Delete all rows of a table, and set new split points",
        "firn table reinitialise orders.yaml --split-points splits.txt --yes",
        "shop.orders is empty: 3 rows deleted\nit is split at 100, 200\n",
    ),
    _example(
        "Resume scheduled maintenance of a table",
        "firn table online orders.yaml",
        "shop.orders is online\n",
        (*_ORDERS, "firn table offline orders.yaml"),
    ),
    _example("Pause scheduled maintenance of a table", "firn table offline orders.yaml", "shop.orders is offline\n"),
    _example(
        "Merge a table's small files", "firn table compact orders.yaml", "4 files became 1 in … ms\n", _SMALL_FILES
    ),
    _example(
        "Show what would be merged",
        "firn table compact orders --namespace shop --dry-run",
        "4 files of … KiB would become 1; the table would have 1\n",
        _SMALL_FILES,
    ),
    _example(
        "Change the partitioning, and keep the old layout",
        "firn table repartition orders.yaml --partition-by customer --keep-old",
        "3 rows are now in 3 partitions and 3 files\nthe old layout is kept as …\n",
    ),
    _example(
        "Show which partitions there would be",
        "firn table repartition orders.yaml --partition-by customer --estimate",
        "PARTITION      ROWS  ABOUT\n"
        "customer=Ann      1  …\n"
        "customer=Bo       1  …\n"
        "customer=Cleo     1  …\n"
        "3 partitions\n",
    ),
    _example(
        "Add a column and rename another",
        "firn table alter orders.yaml --add note=string --rename customer=buyer",
        "altered shop.orders\n",
    ),
    _example(
        "Apply the changes in a file, and one more",
        "firn table alter orders.yaml --changes changes.yaml --set compaction.min_files_to_compact=5",
        "altered shop.orders\n",
    ),
    _example(
        "Show how a table was changed",
        "firn table history orders.yaml",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n…\n2 snapshots\n",
        _TWO_SNAPSHOTS,
    ),
    _example(
        "Leave out the last change",
        "firn table history orders.yaml --offset 1",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n"
        "…  …Z  WRITE        +3     +1  …\n"
        "1 of 2 snapshots\n",
        _TWO_SNAPSHOTS,
    ),
    _example(
        "Show what changed between two snapshots",
        f"firn table diff orders.yaml {_FIRST} {_SECOND}",
        "   id  customer  amount  placed_at\n"
        "+   4  Bo        4.50    2026-03-04T10:00:00Z\n"
        "1 inserted, 0 deleted, 0 updated\n",
        _TWO_SNAPSHOTS,
    ),
    _example(
        "Return a table to a snapshot",
        f"firn table rollback orders.yaml --as-of {_FIRST} --yes",
        "rolled back: 4 rows before, 3 after\n",
        _TWO_SNAPSHOTS,
    ),
    _example(
        "Undo one change",
        f"firn table undo orders.yaml {_REQUEST} --yes",
        "WRITE undone: 1 row removed, 0 restored\n",
        (*_TWO_SNAPSHOTS, _write(5)),
    ),
    _example(
        "List a table's backups",
        "firn backup list orders.yaml",
        "BACKUP                                      KEPT UNTIL         ROWS     SIZE  BEFORE\n"
        "backup-…  …Z     3  … KiB  DELETE\n"
        "1 backup\n",
        _BACKED_UP,
    ),
    _example(
        "Restore a backup, and keep the current state",
        f"firn backup restore orders.yaml {_BACKUP} --backup",
        "restored: 2 rows before, 3 after\nthe previous state is kept as backup-…\n",
        _BACKED_UP,
    ),
    _example("Delete a backup", f"firn backup delete orders.yaml {_BACKUP} --yes", "deleted\n", _BACKED_UP),
    _example(
        "Compact all tables that need it",
        "firn compact --all-recommended",
        "shop.orders: 4 files became 1 in … ms\n",
        _SMALL_FILES,
    ),
    _example(
        "Check whether one table needs it",
        "firn compact --all-recommended --table orders --dry-run",
        "shop.orders: would be compacted: …\n",
        _SMALL_FILES,
    ),
    _example(
        "Read some rows",
        "firn query orders --namespace shop --columns id,customer,amount --where 'amount > 2' --sort 'id desc'",
        "id  customer  amount\n 3  Ann       3.50\n 2  Cleo      2.50\n2 rows\n",
    ),
    _example(
        "Read with SQL",
        "firn query --sql 'SELECT count(*) AS orders FROM shop.orders WHERE customer <> :whom' --param whom=Bo",
        "orders\n     2\n1 row\n",
    ),
    _example(
        "Run the statements of a script",
        "firn sql",
        "orders\n     3\n1 row\n",
        stdin="SELECT count(*) AS orders FROM shop.orders;",
    ),
    _example(
        "Write rows as CSV",
        "firn query shop.orders --columns id,customer --sort id -o csv",
        "id,customer\n1,Bo\n2,Cleo\n3,Ann\n",
    ),
    _example("Load a file into a table", "firn load orders.csv shop.orders", "2 rows loaded\n", (_CREATE,)),
    _example(
        "Load a file into a new table with its name and its columns",
        "firn load orders.csv --create",
        "2 rows loaded\n",
        (),
    ),
    _example("Add rows", "firn write shop.orders new.json", "2 rows written\n", (_CREATE,)),
    _example(
        "Update rows by their key, and insert the others",
        "firn upsert shop.orders new.json",
        "1 row inserted, 1 updated\n",
    ),
    _example(
        "Show which rows would change",
        "firn update shop.orders --set customer=Ann --where 'id = 1' --dry-run",
        "   id  customer  amount  placed_at\n"
        "-   1  Bo        1.50    2026-03-01T10:00:00Z\n"
        "+   1  Ann       1.50    2026-03-01T10:00:00Z\n"
        "1 row would be updated\n"
        "commit exactly this with --plan …\n",
    ),
    _example(
        "Compute new values",
        "firn update shop.orders --compute 'amount=amount * 2' --where 'id > 1' --backup",
        "2 rows updated\nthe previous state is kept as …\n",
    ),
    _example("Delete rows", "firn delete shop.orders --where 'id >= 2'", "2 rows deleted\n"),
    _example(
        "List partitions",
        "firn table partitions shop.orders",
        "PARTITION                ROWS  FILES  SMALL     SIZE\n"
        "placed_at_month=2026-03     3      1      1  … KiB\n"
        "1 partition\n",
    ),
    _example(
        "Show files that nothing refers to",
        "firn table orphans shop.orders --dry-run",
        "0 files of 0 B would be deleted\n",
    ),
    _example("Send a request from a file", "firn call write.json", '{"success":true,"records_written":1,…}\n'),
    _example(
        "Send a request from another program",
        "firn call -",
        '{"success":true,"tables":["orders"],…}\n',
        stdin='{"operation": "LIST_TABLES", "namespace": "shop"}',
    ),
    _example(
        "Compact a table every night",
        f"{_NIGHTLY} --timezone Europe/Zurich",
        "created nightly for 1 table; it is due at …, if a service runs then\n",
    ),
    _example(
        "Show what is due when",
        "firn schedule list",
        "SCHEDULE  CRON       ZONE  TABLES       NEXT                  LAST RUN\n"
        "nightly   0 2 * * *  UTC   shop.orders  …  -\n"
        "1 schedule\n",
        _SCHEDULED,
    ),
    _example(
        "Run a schedule now",
        "firn schedule run nightly",
        "done: 1 done, 0 failed, 0 skipped\n  shop.orders: done: …\n",
        _SCHEDULED,
    ),
    _example("Delete a schedule", "firn schedule delete nightly --yes", "deleted\n", _SCHEDULED),
    _example(
        "List jobs, running or ended",
        "firn job list",
        "JOB                               STATE  KIND     TABLE        STARTED            ENDED\n"
        "…  done   COMPACT  shop.orders  …Z  …Z\n"
        "1 job\n",
        _ENDED,
    ),
    _example("Show the progress of a job", f"firn job show {_JOB}", "job      …\n…\n", _STARTED),
    _example("Wait until a job has ended", f"firn job wait {_JOB}", _ENDED_JOB, _STARTED),
    _example("Cancel a job; a job that has ended does not change", f"firn job cancel {_JOB}", _ENDED_JOB, _ENDED),
    _example("Create a namespace", "firn namespace create shop", "created shop\n", ()),
    _example(
        "List namespaces",
        "firn namespace list",
        "shop\nwebsite\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
    _example(
        "Drop an empty namespace",
        "firn namespace drop shop",
        "dropped shop\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
    # Those about this machine have tests of their own: each needs its own home.
    _example("Serve another folder on another port", "FIRN_HOME=/data/firn FIRN_PORT=8081 firn serve", setup=()),
    _example("Stop the service", "firn stop", "stopped\n", ()),
    _example(
        "Check what is missing", "firn doctor", "ok   Java …\nok   port …\nok   FIRN_HOME …\nok   FIRN_HOME …\n", ()
    ),
    _example("Fetch the jars before the first start", "firn jars", setup=()),
    _example("Write the OpenAPI document into a file", "firn openapi > firn.json", setup=()),
    _example(
        "Name a service and a tenant",
        "firn profile add prod --url https://firn.example.com --tenant acme",
        "added prod; use it with -p prod\n",
        (),
    ),
    _example(
        "List profiles",
        "firn profile list",
        "PROFILE  URL                       TENANT\nprod     https://firn.example.com  acme\n",
        ("firn profile add prod --url https://firn.example.com --tenant acme",),
    ),
    _example(
        "Remove a profile",
        "firn profile remove prod",
        "removed prod\n",
        ("firn profile add prod --tenant acme",),
    ),
    _example("Complete in this bash; in zsh, write zsh instead", 'eval "$(firn completion bash)"', setup=()),
    _example(
        "Complete in every zsh that has ~/.zfunc in its $fpath before compinit",
        "firn completion zsh > ~/.zfunc/_firn",
        setup=(),
    ),
    _example("Complete in every fish", "firn completion fish > ~/.config/fish/completions/firn.fish", setup=()),
)
