"""Examples of `firn schedule …`, `firn job …` and `firn namespace …`."""

from typing import Any

from service.cli.command import Example
from service.cli.examples.given import FILES, ORDERS

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
    Example(
        "Compact a table every night",
        f"{_NIGHTLY} --timezone Europe/Zurich",
        "created nightly for 1 table; it is due at …, where a service runs then\n",
        ORDERS,
        FILES,
    ),
)
LIST = (
    Example(
        "See what is due when",
        "firn schedule list",
        "SCHEDULE  CRON       ZONE  TABLES       NEXT                  LAST RUN\n"
        "nightly   0 2 * * *  UTC   shop.orders  …  -\n"
        "1 schedule\n",
        (*ORDERS, _NIGHTLY),
        FILES,
    ),
)
RUN = (
    Example(
        "Do now what a schedule does",
        "firn schedule run nightly",
        "done: 1 done, 0 failed, 0 skipped\n  shop.orders: done: …\n",
        (*ORDERS, _NIGHTLY),
        FILES,
    ),
)
DELETE = (
    Example("Delete a schedule", "firn schedule delete nightly --force", "deleted\n", (*ORDERS, _NIGHTLY), FILES),
)
JOBS = (
    Example(
        "See what is under way, and what was",
        "firn job list",
        "JOB                               STATE  KIND     TABLE        BEGUN              ENDED\n"
        "…  done   COMPACT  shop.orders  …Z  …Z\n"
        "1 job\n",
        (*ORDERS, _JOB, f"firn job wait {_ID}"),
        FILES,
        taken=_NAMED,
    ),
)
JOB = (Example("See how far a job is", f"firn job show {_ID}", "job    …\n…\n", (*ORDERS, _JOB), FILES, taken=_NAMED),)
WAIT = (Example("Wait for the end of a job", f"firn job wait {_ID}", _ENDED, (*ORDERS, _JOB), FILES, taken=_NAMED),)
CANCEL = (
    Example(
        "Call a job off; one that has ended stays as it is",
        f"firn job cancel {_ID}",
        _ENDED,
        (*ORDERS, _JOB, f"firn job wait {_ID}"),
        FILES,
        taken=_NAMED,
    ),
)
SPACE_CREATE = (Example("Create a namespace", "firn namespace create shop", "created shop\n"),)
SPACE_LIST = (
    Example(
        "List namespaces",
        "firn namespace list",
        "shop\nwebsite\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
)
SPACE_DROP = (
    Example("Drop an empty namespace", "firn namespace drop shop", "dropped shop\n", ("firn namespace create shop",)),
)
