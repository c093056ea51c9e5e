"""The runner of all tests: every folder of tests is in a group, and the table says what passed and what it cost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.run import SERVICE, Group, Result, groups, run, run_all, table

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("everything", [False, True])
def test_every_folder_of_tests_is_in_one_group(everything: bool) -> None:
    folders = {f"tests/{path.parent.relative_to(TESTS).parts[0]}" for path in TESTS.rglob("test_*.py")}
    named = [word for group in groups(everything, large=False) for line in group.commands for word in line]
    assert all(named.count(folder) == 1 for folder in folders), folders


def test_only_a_run_of_everything_has_variants_and_only_one_with_sizes_has_large_ones() -> None:
    def marks(everything: bool, large: bool) -> list[str]:
        lines = [line for group in groups(everything, large) for line in group.commands]
        return [line[line.index("-m", 3) + 1] for line in lines if "-m" in line[3:]]

    assert set(marks(False, False)) == {"not large and not thorough"}
    assert set(marks(True, False)) == {"not large"}
    assert marks(True, True) == [*marks(True, False), "large"]


def test_a_group_counts_its_tests_its_failures_and_the_cpu_seconds_of_all_it_started(tmp_path: Path) -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    (tmp_path / "test_it.py").write_text(
        "import pytest, subprocess, sys\n"
        f"def test_passes(): subprocess.run([sys.executable, '-c', {burn!r}], check=True)\n"
        "def test_fails(): assert False\n"
        "def test_is_skipped(): pytest.skip('why')\n"
    )
    pytest_here = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    result = run(Group("some", (pytest_here,)))
    assert (result.passed, result.failed, result.skipped) == (1, 1, 1)
    assert result.cpu_s > 0.3


def test_a_check_that_fails_and_a_run_that_cannot_begin_count_as_failures(tmp_path: Path) -> None:
    result = run(Group("checks", (("true",), ("false",), ("true",)), counted=False))
    assert (result.passed, result.failed) == (2, 1)
    nothing = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "nowhere"))
    assert run(Group("none", (nothing,))).failed == 1


def test_the_table_ends_with_the_sum() -> None:
    lines = table([Result("unit", 10, 0, 2, 61.2, 80.4), Result("faults", 5, 1, 0, 600, 90)], 605).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["unit", "10", "0", "2", "1:01", "80"],
        ["faults", "5", "1", "0", "10:00", "90"],
        ["total", "15", "1", "2", "10:05", "170"],
    ]


def waiting(name: str, for_file: Path, own_file: Path) -> Group:
    """A group that ends once the other has begun."""
    wait = f"import pathlib, time; pathlib.Path({str(own_file)!r}).touch()\n"
    wait += f"while not pathlib.Path({str(for_file)!r}).exists(): time.sleep(0.01)\nprint('{name} ended')"
    return Group(name, ((sys.executable, "-c", wait),), counted=False)


@pytest.mark.timeout(60)
def test_groups_run_beside_the_service_and_stand_in_the_table_in_their_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    chosen = [waiting("unit", one, other), waiting(SERVICE, other, one), Group("none", (("false",),), counted=False)]
    results = run_all(chosen, beside=True)
    assert [(r.name, r.passed, r.failed) for r in results] == [("unit", 1, 0), (SERVICE, 1, 0), ("none", 0, 1)]
    printed = capfd.readouterr().out
    assert all(f"{name} ended" in printed for name in ("unit", SERVICE))


@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_run_and_begins_no_other_group(tmp_path: Path) -> None:
    def group(name: str) -> str:
        code = f"import time; print('began', flush=True); open({str(tmp_path / name)!r}, 'x'); time.sleep(100)"
        return f"Group({name!r}, (({sys.executable!r}, '-c', {code!r}),), False)"

    chosen = ", ".join(map(group, (SERVICE, "unit", "faults")))
    # A shell that runs tests in the background has it ignored.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}\nfrom tests.run import Group, run_all\nrun_all([{chosen}], beside=True)"
    running = subprocess.Popen(
        (sys.executable, "-c", program), cwd=TESTS.parent, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while running.poll() is None and not all((tmp_path / name).exists() for name in (SERVICE, "unit")):
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) != 0
        assert not (tmp_path / "faults").exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def test_groups_run_one_after_the_other_if_they_are_not_to_run_beside_each_other(tmp_path: Path) -> None:
    made = tmp_path / "made"
    first = Group(SERVICE, ((sys.executable, "-c", f"import time; time.sleep(0.3); open({str(made)!r}, 'x')"),), False)
    second = Group("unit", ((sys.executable, "-c", f"open({str(made)!r})"),), False)
    assert [result.failed for result in run_all([first, second], beside=False)] == [0, 0]
