"""A home has one owner at a time: a process, or the JVM that a killed one left."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service.host import process_locks
from service.settings import ROOT, HomeInUse

OWNING = "import sys; from pathlib import Path; from service.host import process_locks\n"
OWNING += "lock = process_locks.acquire(Path(sys.argv[1])); print('owned', flush=True); sys.stdin.read()"


def test_a_second_owner_is_refused_at_once_and_told_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        assert not process_locks.is_free(tmp_path)
        with pytest.raises(HomeInUse, match=f"is in use by process {owner.pid}; stop it"):
            process_locks.acquire(tmp_path)
        owner.communicate(timeout=20)
    assert process_locks.is_free(tmp_path)
    with process_locks.acquire(tmp_path) as lock:
        lock.seek(0)
        assert lock.read() == str(os.getpid())


def test_what_a_killed_owner_left_is_waited_for(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(20)
    with (tmp_path / "lock").open("a+") as jvm:
        jvm.write(str(ended.pid))
        jvm.flush()
        fcntl.flock(jvm, fcntl.LOCK_EX)
        threading.Timer(0.3, lambda: fcntl.flock(jvm, fcntl.LOCK_UN)).start()
        process_locks.acquire(tmp_path).close()


def test_a_home_that_is_not_there_is_free(tmp_path: Path) -> None:
    assert process_locks.is_free(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
