"""The jar cache: what a start can rely on, whatever the network did."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from service.host import jars
from service.host.jars import Jar, JarError
from service.settings import SettingsError

ONE, TWO = b"one jar's bytes", b"another jar's bytes"


class Repository:
    """A download that serves bytes from memory, counts its visits, and fails when told to."""

    def __init__(self, contents: dict[str, bytes], failures: Iterable[bytes | str] = ()) -> None:
        self.contents = contents
        self.failures = list(failures)
        self.visits: list[str] = []

    def __call__(self, jar: Jar, folder: Path) -> None:
        self.visits.append(jar.artifact)
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, str):
            raise JarError(failure)
        (folder / jar.file_name).write_bytes(failure or self.contents[jar.artifact])


def lock_file(folder: Path, **contents: bytes) -> Path:
    path = folder / "jars.lock"
    path.write_text("".join(f"org.example:{a}:1.0 {hashlib.sha256(c).hexdigest()}\n" for a, c in contents.items()))
    return path


def quiet(_: object) -> None:
    """Neither a report nor a pause."""


def fetch(lock: Path, cache: Path, download: Repository, report: Callable[[str], None] = quiet) -> list[Path]:
    return jars.fetch(lock, cache, report, download, pause=quiet)


def test_missing_jars_are_fetched_in_the_order_of_the_lock_and_each_is_announced(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE, two=TWO)
    lines: list[str] = []
    found = fetch(lock, tmp_path / "cache", Repository({"one": ONE, "two": TWO}), lines.append)
    assert [p.name for p in found] == ["one-1.0.jar", "two-1.0.jar"]
    assert [p.read_bytes() for p in found] == [ONE, TWO]
    assert lines == ["fetching one-1.0.jar (1 of 2) …", "fetching two-1.0.jar (2 of 2) …"]


def test_a_second_fetch_downloads_nothing_and_says_nothing(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE)
    lines: list[str] = []
    repository = Repository({"one": ONE})
    first = fetch(lock, tmp_path, repository)
    assert fetch(lock, tmp_path, repository, lines.append) == first == jars.locate(lock, tmp_path)
    assert (repository.visits, lines) == (["one"], [])


def test_a_jar_with_another_hash_is_thrown_away_and_fetched_again(tmp_path: Path) -> None:
    lock, cache = lock_file(tmp_path, one=ONE), tmp_path / "cache"
    repository = Repository({"one": ONE}, failures=[TWO])
    (found,) = fetch(lock, cache, repository)
    assert found.read_bytes() == ONE
    assert repository.visits == ["one", "one"]


def test_a_jar_that_never_matches_ends_in_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lock, cache = lock_file(tmp_path, one=ONE), tmp_path / "cache"
    repository = Repository({"one": TWO})
    with pytest.raises(
        JarError, match=r"cannot fetch one-1\.0\.jar: its sha256 is \w+, not the \w+ .*tried 3 times"
    ) as e:
        fetch(lock, cache, repository)
    assert "\n" not in str(e.value)
    assert len(repository.visits) == 3
    assert [p.name for p in cache.iterdir()] == [".lock"]


def test_a_failing_network_is_tried_again_after_growing_pauses(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE)
    pauses: list[float] = []
    repository = Repository({"one": ONE}, failures=["the network is down", "it is still down"])
    jars.fetch(lock, tmp_path / "cache", quiet, repository, pauses.append)
    assert len(repository.visits) == 3
    assert pauses == sorted(set(pauses))
    assert len(pauses) == 2


def test_a_jar_cut_short_since_it_was_verified_is_fetched_again(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE)
    repository = Repository({"one": ONE})
    (found,) = fetch(lock, tmp_path, repository)
    found.write_bytes(ONE[:-1])
    with pytest.raises(SettingsError, match="make jars"):
        jars.locate(lock, tmp_path)
    assert fetch(lock, tmp_path, repository)[0].read_bytes() == ONE
    assert len(repository.visits) == 2


def test_a_new_hash_in_the_lock_replaces_the_jar(tmp_path: Path) -> None:
    fetch(lock_file(tmp_path, one=ONE), tmp_path, Repository({"one": ONE}))
    (found,) = fetch(lock_file(tmp_path, one=TWO), tmp_path, Repository({"one": TWO}))
    assert found.read_bytes() == TWO


def test_a_jar_copied_in_by_hand_is_verified_and_taken_without_a_network(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE)
    (tmp_path / "one-1.0.jar").write_bytes(ONE)
    repository = Repository({})
    assert fetch(lock, tmp_path, repository) == jars.locate(lock, tmp_path)
    assert repository.visits == []


def test_ten_fetches_at_once_download_each_jar_once(tmp_path: Path) -> None:
    lock, cache = lock_file(tmp_path, one=ONE, two=TWO), tmp_path / "cache"
    repository = Repository({"one": ONE, "two": TWO})
    results: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: results.append(fetch(lock, cache, repository))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repository.visits == ["one", "two"]
    assert len(results) == 10
    assert all([p.read_bytes() for p in found] == [ONE, TWO] for found in results)


def test_locate_names_what_is_missing_and_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"lacks one-1\.0\.jar, two-1\.0\.jar; run `make jars`"):
        jars.locate(lock_file(tmp_path, one=ONE, two=TWO), tmp_path)


def test_a_cache_below_a_file_is_refused_in_one_line_that_names_the_variable(tmp_path: Path) -> None:
    lock = lock_file(tmp_path, one=ONE)
    with pytest.raises(JarError, match="FIRN_CACHE"):
        fetch(lock, lock / "cache", Repository({"one": ONE}))


def test_a_line_the_lock_cannot_mean_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jars.lock"
    path.write_text(f"# a comment\n\norg.example:one:1.0 {'0' * 63}\n")
    with pytest.raises(SettingsError, match="line 3 is not"):
        jars.read_lock(path)


def test_the_cache_is_the_named_one_else_the_users(tmp_path: Path) -> None:
    assert jars.cache_dir({"FIRN_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/x"}) == tmp_path
    assert jars.cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/firn/jars")
    assert jars.cache_dir({}) == Path.home() / ".cache" / "firn" / "jars"


def test_java_that_does_not_start_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JarError, match="JAVA_HOME"):
        jars.ivy(Jar("org.example", "one", "1.0", "0" * 64), tmp_path)


def test_a_failed_download_says_what_ivy_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\necho ':: problems summary ::'; echo '  UNRESOLVED: org.example#one;1.0: not found'; exit 1\n"
    )
    os.chmod(java, 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JarError, match=r"org\.example#one;1\.0: not found"):
        jars.ivy(Jar("org.example", "one", "1.0", "0" * 64), tmp_path)


def test_the_projects_own_lock_can_be_read() -> None:
    found = jars.read_lock()
    assert len({jar.file_name for jar in found}) == len(found) > 0
