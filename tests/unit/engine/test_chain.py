"""Changes that follow from each other."""

from service.engine.jobs.edits.reversal import reached


def test_what_follows_from_a_change_is_reached_over_any_number_of_steps() -> None:
    assert reached([0], [(2, 5), (0, 2), (5, 6), (1, 4)]) == (0, 2, 5, 6)


def test_what_follows_from_none_of_them_is_not() -> None:
    assert reached([3], [(0, 1), (1, 2)]) == (3,)
    assert reached([], [(0, 1)]) == ()
