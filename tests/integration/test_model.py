"""Random requests against Firn and against a list of dicts: every answer, count and refusal is the same."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness import Firn
from tests.model.editing import Editing
from tests.model.maintaining import Maintaining
from tests.model.reading import Reading
from tests.model.undoing import Undoing
from tests.support.marks import thorough_after


class Model(Editing, Maintaining, Reading, Undoing):
    """All rules there are."""


ROW_LEVELS = ("merge_on_read", "copy_on_write", "auto")


def run(firn: Firn, tenant: str, row_level: str, examples: int, steps: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        lambda: Model(firn, tenant, row_level),  # type: ignore[arg-type]  # it takes what makes one, too
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("row_level", "examples"),
    # Random bulk upserts in every run are merged on read.
    thorough_after(1, [("copy_on_write", 1), ("merge_on_read", 1), *((r, 20) for r in ROW_LEVELS)]),
)
def test_firn_does_what_a_list_of_dicts_does(firn: Firn, tenant: str, row_level: str, examples: int) -> None:
    # Shrinking a failure takes many times as long as finding it; the long run below does that.
    run(firn, tenant, row_level, examples=examples, steps=20, phases=(Phase.generate,))


@pytest.mark.large
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("row_level", ROW_LEVELS)
def test_firn_does_what_a_list_of_dicts_does_for_long(firn: Firn, tenant: str, row_level: str) -> None:
    run(firn, tenant, row_level, examples=150, steps=40, phases=(Phase.generate, Phase.shrink))
