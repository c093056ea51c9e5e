"""The examples of commands that read and change rows."""

from service.cli.examples.shared import CREATE, example

EXAMPLES = (
    example(
        "Read some rows",
        "firn query orders --namespace shop --columns id,customer,amount --where 'amount > 2' --sort 'id desc'",
        "id  customer  amount\n 3  Ann       3.50\n 2  Cleo      2.50\n2 rows\n",
    ),
    example(
        "Read with SQL",
        "firn query --sql 'SELECT count(*) AS orders FROM shop.orders WHERE customer <> :whom' --param whom=Bo",
        "orders\n     2\n1 row\n",
    ),
    example(
        "Run the statements of a script",
        "firn sql",
        "orders\n     3\n1 row\n",
        stdin="SELECT count(*) AS orders FROM shop.orders;",
    ),
    example(
        "Write rows as CSV",
        "firn query shop.orders --columns id,customer --sort id -o csv",
        "id,customer\n1,Bo\n2,Cleo\n3,Ann\n",
    ),
    example("Load a file into a table", "firn load orders.csv shop.orders", "2 rows loaded\n", (CREATE,)),
    example(
        "Load a file into a new table with its name and its columns",
        "firn load orders.csv --create",
        "2 rows loaded\n",
        (),
    ),
    example(
        "Update rows by their key, and insert the others, from a file of any size",
        "firn load new.json shop.orders --upsert --key-cols id",
        "1 row inserted, 1 updated\n",
    ),
    example("Add rows", "firn write shop.orders new.json", "2 rows written\n", (CREATE,)),
    example(
        "Update rows by their key, and insert the others",
        "firn upsert shop.orders new.json",
        "1 row inserted, 1 updated\n",
    ),
    example(
        "Show which rows would change",
        "firn update shop.orders --set customer=Ann --where 'id = 1' --dry-run",
        "   id  customer  amount  placed_at\n"
        "-   1  Bo        1.50    2026-03-01T10:00:00Z\n"
        "+   1  Ann       1.50    2026-03-01T10:00:00Z\n"
        "1 row would be updated\n"
        "commit exactly this with --plan …\n",
    ),
    example(
        "Compute new values",
        "firn update shop.orders --compute 'amount=amount * 2' --where 'id > 1' --backup",
        "2 rows updated\nthe previous state is kept as …\n",
    ),
    example("Delete rows", "firn delete shop.orders --where 'id >= 2'", "2 rows deleted\n"),
    example("Send a request from a file", "firn call write.json", '{"success":true,"records_written":1,…}\n'),
    example(
        "Send a request from another program",
        "firn call -",
        '{"success":true,"tables":["orders"],…}\n',
        stdin='{"operation": "LIST_TABLES", "namespace": "shop"}',
    ),
)
