"""Examples of `firn schedule …`, `firn job …` and `firn namespace …`."""

from typing import Any

from service.cli.command import CommandExample
from service.cli.examples.setup import ORDERS, example

_NIGHTLY = "firn schedule create nightly --namespace shop --table orders --cron '0 2 * * *'"
_JOB: dict[str, Any] = {
    "operation": "COMPACT",
    "namespace": "shop",
    "table": "orders",
    "async": True,
}
_ID = "0fa7ded8260a46d28fdaf65749030929"
_NAMED = {_ID: (1, "job_id")}
_ENDED = "job    …\nkind   COMPACT\ntable  shop.orders\nstate  done\nphase  …\nbegun  …\nended  …\n"

CREATE = (
    example(
        "Compact a table every night",
        f"{_NIGHTLY} --timezone Europe/Zurich",
        "created nightly for 1 table; it is due at …, where a service runs then\n",
    ),
)
LIST = (
    example(
        "Show what is due when",
        "firn schedule list",
        "SCHEDULE  CRON       ZONE  TABLES       NEXT                  LAST RUN\n"
        "nightly   0 2 * * *  UTC   shop.orders  …  -\n"
        "1 schedule\n",
        (*ORDERS, _NIGHTLY),
    ),
)
RUN = (
    example(
        "Run a schedule now",
        "firn schedule run nightly",
        "done: 1 done, 0 failed, 0 skipped\n  shop.orders: done: …\n",
        (*ORDERS, _NIGHTLY),
    ),
)
DELETE = (example("Delete a schedule", "firn schedule delete nightly --force", "deleted\n", (*ORDERS, _NIGHTLY)),)
JOBS = (
    example(
        "List jobs, running or ended",
        "firn job list",
        "JOB                               STATE  KIND     TABLE        BEGUN              ENDED\n"
        "…  done   COMPACT  shop.orders  …Z  …Z\n"
        "1 job\n",
        (*ORDERS, _JOB, f"firn job wait {_ID}"),
        placeholders=_NAMED,
    ),
)
JOB = (
    example(
        "Show the progress of a job", f"firn job show {_ID}", "job    …\n…\n", (*ORDERS, _JOB), placeholders=_NAMED
    ),
)
WAIT = (example("Wait until a job has ended", f"firn job wait {_ID}", _ENDED, (*ORDERS, _JOB), placeholders=_NAMED),)
CANCEL = (
    example(
        "Cancel a job; one that has ended stays as it is",
        f"firn job cancel {_ID}",
        _ENDED,
        (*ORDERS, _JOB, f"firn job wait {_ID}"),
        placeholders=_NAMED,
    ),
)
NAMESPACE_CREATE = (CommandExample("Create a namespace", "firn namespace create shop", "created shop\n"),)
NAMESPACE_LIST = (
    CommandExample(
        "List namespaces",
        "firn namespace list",
        "shop\nwebsite\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
)
NAMESPACE_DROP = (
    CommandExample(
        "Drop an empty namespace", "firn namespace drop shop", "dropped shop\n", ("firn namespace create shop",)
    ),
)
