"""Rows are followed through commits: where they are is never missed, nor who touched them."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from service.edits.trace import TracedCommit, UndoneChange, read_undone, standing, trace, without_effect


@dataclass
class Table:
    """Files with rows, each row a number of its own; commits take files out and put others in."""

    files: dict[str, set[int]] = field(default_factory=dict)
    made: int = 0

    def file(self, rows: set[int]) -> str:
        self.made += 1
        name = f"f{self.made}"
        self.files[name] = rows
        return name


COMMITS = st.lists(
    st.tuples(st.sampled_from(["append", "compact", "edit"]), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 60))),
    max_size=12,
)


@given(COMMITS)
def test_rows_are_among_the_files_traced_and_whoever_took_one_is_a_suspect(
    commits: list[tuple[str, set[int], set[int]]],
) -> None:
    table, next_row = Table(), 100
    ours = {0, 1, 2, 3}
    start = {table.file({0, 1}), table.file({2, 3})}
    table.file({4, 5})
    steps, touched = [], []
    for n, (kind, which, victims) in enumerate(commits):
        removed: set[str] = set()
        if kind == "append":
            added = {table.file({next_row})}
            next_row += 1
        else:
            names = sorted(table.files)
            removed = {names[i % len(names)] for i in which} if names else set()
            kept = set().union(*(table.files.pop(name) for name in removed)) if removed else set()
            if kind == "edit":
                if kept & victims & ours:
                    touched.append(n)
                kept -= victims
            added = {table.file(kept)} if kept else set()
        steps.append(TracedCommit(n, frozenset(added), frozenset(removed), kind == "compact"))
    traced = trace(start, steps)
    there = {name for name, rows in table.files.items() if rows & ours}
    assert there <= traced.files <= table.files.keys() | set()
    assert set(touched) <= {step.snapshot_id for step in traced.suspects}
    assert all(not step.leaves_rows for step in traced.suspects)


def test_an_undo_that_was_undone_does_not_stand() -> None:
    undos = [("b", UndoneChange("a", "1")), ("c", UndoneChange("b", "2")), ("e", UndoneChange("d", "4"))]
    assert standing(undos) == {"c": UndoneChange("b", "2"), "e": UndoneChange("d", "4")}
    assert standing([*undos, ("f", UndoneChange("c", "3"))]).keys() == {"b", "e", "f"}


def test_a_change_and_its_undo_cancel_each_other_if_both_came_later() -> None:
    undos = {"c": UndoneChange("b", "2"), "e": UndoneChange("a", "1")}
    assert without_effect(["b", "c", "d", "e"], undos, {}) == {"b", "c"}


def test_of_a_batch_that_is_undone_for_one_request_the_others_stay_in_effect() -> None:
    undos = {"c": UndoneChange("b", "2")}
    assert without_effect(["b", "c"], undos, {"b": 2}) == {"c"}


def test_request_ids_may_hold_any_character() -> None:
    assert read_undone(UndoneChange("a", "x:y").text) == UndoneChange("a", "x:y")


def test_rows_that_an_undo_brought_back_are_followed_into_its_files() -> None:
    def step(n: int, added: set[str], removed: set[str], *, brings_back: bool = False) -> TracedCommit:
        return TracedCommit(n, frozenset(added), frozenset(removed), False, brings_back)

    steps = [step(1, set(), {"a"}), step(2, {"other"}, set()), step(3, {"b"}, set(), brings_back=True)]
    touching = step(4, {"c"}, {"b"})
    traced = trace({"a"}, [*steps, touching])
    assert traced.files == {"c"}
    assert traced.suspects == (steps[0], touching)


def test_a_commit_that_deleted_rows_of_a_file_may_have_touched_them_and_left_the_others_there() -> None:
    step = TracedCommit(1, frozenset({"b"}), frozenset(), False, deleted_from=frozenset({"a"}))
    beside = TracedCommit(2, frozenset(), frozenset(), False, deleted_from=frozenset({"other"}))
    traced = trace({"a"}, [step, beside])
    assert (traced.files, traced.suspects) == ({"a", "b"}, (step,))
