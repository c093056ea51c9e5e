"""Examples of all other commands. Those about this machine have tests of their own: each needs its own home."""

from service.cli.command import CommandExample, Request
from service.cli.examples.setup import FILES, ORDERS, example

_NIGHTLY = "firn schedule create nightly --namespace shop --table orders --cron '0 2 * * *'"
_SCHEDULED = (*ORDERS, _NIGHTLY)
_COMPACT: Request = {"operation": "COMPACT", "namespace": "shop", "table": "orders", "async": True}
_STARTED = (*ORDERS, _COMPACT)
_JOB = "0fa7ded8260a46d28fdaf65749030929"
_JOB_ID = {_JOB: (1, "job_id")}
_ENDED = (*_STARTED, f"firn job wait {_JOB}")
_ENDED_JOB = "job      …\nkind     COMPACT\ntable    shop.orders\nstate    done\nphase    …\nstarted  …\nended    …\n"
_WRITE = """\
{"operation": "WRITE", "namespace": "shop", "table": "orders",
 "records": [{"id": 7, "customer": "Di", "amount": 9.99}]}
"""

OTHERS: tuple[CommandExample, ...] = (
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
    CommandExample(
        "Send a request from a file",
        "firn call write.json",
        '{"success":true,"records_written":1,…}\n',
        ORDERS,
        {**FILES, "write.json": _WRITE},
    ),
    example(
        "Send a request from another program",
        "firn call -",
        '{"success":true,"tables":["orders"],…}\n',
        stdin='{"operation": "LIST_TABLES", "namespace": "shop"}',
    ),
    example(
        "Compact a table every night",
        f"{_NIGHTLY} --timezone Europe/Zurich",
        "created nightly for 1 table; it is due at …, if a service runs then\n",
    ),
    example(
        "Show what is due when",
        "firn schedule list",
        "SCHEDULE  CRON       ZONE  TABLES       NEXT                  LAST RUN\n"
        "nightly   0 2 * * *  UTC   shop.orders  …  -\n"
        "1 schedule\n",
        _SCHEDULED,
    ),
    example(
        "Run a schedule now",
        "firn schedule run nightly",
        "done: 1 done, 0 failed, 0 skipped\n  shop.orders: done: …\n",
        _SCHEDULED,
    ),
    example("Delete a schedule", "firn schedule delete nightly --force", "deleted\n", _SCHEDULED),
    example(
        "List jobs, running or ended",
        "firn job list",
        "JOB                               STATE  KIND     TABLE        STARTED            ENDED\n"
        "…  done   COMPACT  shop.orders  …Z  …Z\n"
        "1 job\n",
        _ENDED,
        placeholders=_JOB_ID,
    ),
    example("Show the progress of a job", f"firn job show {_JOB}", "job      …\n…\n", _STARTED, placeholders=_JOB_ID),
    example("Wait until a job has ended", f"firn job wait {_JOB}", _ENDED_JOB, _STARTED, placeholders=_JOB_ID),
    example(
        "Cancel a job; a job that has ended does not change",
        f"firn job cancel {_JOB}",
        _ENDED_JOB,
        _ENDED,
        placeholders=_JOB_ID,
    ),
    CommandExample("Create a namespace", "firn namespace create shop", "created shop\n"),
    CommandExample(
        "List namespaces",
        "firn namespace list",
        "shop\nwebsite\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
    CommandExample(
        "Drop an empty namespace", "firn namespace drop shop", "dropped shop\n", ("firn namespace create shop",)
    ),
    CommandExample("Serve another folder on another port", "FIRN_HOME=/data/firn FIRN_PORT=8081 firn serve", ""),
    CommandExample("Stop the service in the background", "firn stop", "stopped\n"),
    CommandExample("Check what is missing", "firn doctor", "ok   Java …\nok   port …\nok   FIRN_HOME …\n"),
    CommandExample("Fetch the jars before the first start", "firn jars", ""),
    CommandExample("Write the OpenAPI document into a file", "firn openapi > firn.json", ""),
    CommandExample("Complete in this bash; in zsh, write zsh instead", 'eval "$(firn completion bash)"', ""),
    CommandExample(
        "Complete in every zsh that has ~/.zfunc in its $fpath before compinit",
        "firn completion zsh > ~/.zfunc/_firn",
        "",
    ),
    CommandExample("Complete in every fish", "firn completion fish > ~/.config/fish/completions/firn.fish", ""),
)
