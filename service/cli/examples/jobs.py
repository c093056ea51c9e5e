"""The examples of commands about schedules and jobs."""

from service.cli.examples.shared import ENDED, ENDED_JOB, JOB, NIGHTLY, SCHEDULED, STARTED, example

EXAMPLES = (
    example(
        "Compact a table every night",
        f"{NIGHTLY} --timezone Europe/Zurich",
        "created nightly for 1 table; it is due at …, if a service runs then\n",
    ),
    example(
        "Show what is due when",
        "firn schedule list --all-namespaces",
        "SCHEDULE  CRON       ZONE  TABLES       NEXT                  LAST RUN\n"
        "nightly   0 2 * * *  UTC   shop.orders  …  -\n"
        "1 schedule\n",
        SCHEDULED,
    ),
    example(
        "Run a schedule now",
        "firn schedule run nightly",
        "done: 1 done, 0 failed, 0 skipped\n  shop.orders: done: …\n",
        SCHEDULED,
    ),
    example("Delete a schedule", "firn schedule delete nightly --yes", "deleted\n", SCHEDULED),
    example(
        "List jobs, running or ended",
        "firn job list -A",
        "JOB                               STATE  KIND     TABLE        STARTED            ENDED\n"
        "…  done   COMPACT  shop.orders  …Z  …Z\n"
        "1 job\n",
        ENDED,
    ),
    example("Show the progress of a job", f"firn job show {JOB}", "job      …\n…\n", STARTED),
    example("Wait until a job has ended", f"firn job wait {JOB}", ENDED_JOB, STARTED),
    example("Cancel a job; a job that has ended does not change", f"firn job cancel {JOB}", ENDED_JOB, ENDED),
)
