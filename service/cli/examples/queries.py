"""Examples of `firn query` and `firn call`."""

from service.cli.command import CommandExample
from service.cli.examples.setup import FILES, ORDERS, example

QUERY = (
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
)
CALL = (
    CommandExample(
        "Send a request from a file",
        "firn call write.json",
        '{"success":true,"records_written":1,…}\n',
        ORDERS,
        {
            **FILES,
            "write.json": '{"operation": "WRITE", "namespace": "shop", "table": "orders",\n'
            ' "records": [{"id": 7, "customer": "Di", "amount": 9.99}]}\n',
        },
    ),
    example(
        "Send a request from another program",
        "firn call -",
        '{"success":true,"tables":["orders"],…}\n',
        stdin='{"operation": "LIST_TABLES", "namespace": "shop"}',
    ),
)
