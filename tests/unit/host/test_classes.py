"""The archive of the JVM's classes: made once for what it belongs to, read where it is, missed nowhere."""

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service.engine.session.conf import spark_conf
from service.host import class_archive
from service.settings import load


class Machine:
    """A Java, a jar and a cache in one folder, and rehearsals of a JVM that writes what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.java = folder / "jdk" / "bin" / "java"
        self.java.parent.mkdir(parents=True)
        self.java.write_text("")
        self.java.chmod(0o755)
        self.jar = folder / "iceberg.jar"
        self.jar.write_bytes(b"classes")
        self.cache = folder / "cache"
        self.cache.mkdir()
        self.environ = {"JAVA_HOME": str(folder / "jdk"), "FIRN_CACHE": str(self.cache)}
        self.said: list[str] = []
        self.rehearsals = 0

    def rehearse(self, options: class_archive.Options) -> None:
        self.rehearsals += 1
        [written] = [option.partition("=")[2] for option in options if option.startswith("-XX:ArchiveClassesAtExit=")]
        Path(written).write_bytes(b"archive")

    def prepare(self, rehearse: Callable[[class_archive.Options], None] | None = None) -> bool:
        return class_archive.prepare([self.jar], self.environ, rehearse or self.rehearse, self.said.append)

    def read(self) -> list[str]:
        """The archives that a start would read."""
        options = class_archive.java_options([self.jar], self.environ)
        return [option.partition("=")[2] for option in options if option.startswith("-XX:SharedArchiveFile=")]

    def kept(self) -> list[str]:
        return [str(file) for file in self.cache.glob("*.jsa*")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_start_reads_what_a_rehearsal_wrote_and_nothing_before_it(machine: Machine) -> None:
    assert machine.read() == []
    assert machine.prepare()
    assert machine.read() == machine.kept()
    assert len(machine.kept()) == 1


def test_it_is_rehearsed_once(machine: Machine) -> None:
    machine.prepare()
    machine.said.clear()
    assert machine.prepare()
    assert (machine.rehearsals, machine.said) == (1, [])


@pytest.mark.parametrize("changed", ["java", "jar"])
def test_after_another_java_or_jar_it_is_not_read_but_made_again(machine: Machine, changed: str) -> None:
    machine.prepare()
    getattr(machine, changed).write_bytes(b"another, of another length")
    assert machine.read() == []
    machine.prepare()
    assert (machine.rehearsals, len(machine.read())) == (2, 1)


def test_a_java_that_writes_none_is_told_and_leaves_nothing(machine: Machine) -> None:
    assert not machine.prepare(lambda options: None)
    assert machine.said[-1].startswith("Spark's classes were not prepared: Java wrote no archive.")
    assert (machine.read(), list(machine.cache.glob(".classes-*"))) == ([], [])


def test_a_rehearsal_that_fails_is_told_and_leaves_nothing(machine: Machine) -> None:
    def fails(options: class_archive.Options) -> None:
        machine.rehearse(options)
        raise RuntimeError("no memory")

    assert not machine.prepare(fails)
    assert machine.said[-1].startswith("Spark's classes were not prepared: no memory.")
    assert (machine.read(), list(machine.cache.glob(".classes-*"))) == ([], [])


def test_what_no_start_has_used_for_long_goes_when_another_is_made(machine: Machine) -> None:
    unused, used = machine.cache / "classes-0.jsa", machine.cache / "classes-1.jsa"
    for file, days in ((unused, 31), (used, 29)):
        file.touch()
        os.utime(file, (0, time.time() - days * 24 * 3600))
    machine.prepare()
    assert not unused.exists()
    assert used.exists()


def test_a_start_keeps_what_it_reads_from_being_unused(machine: Machine) -> None:
    machine.prepare()
    [file] = machine.kept()
    os.utime(file, (0, 0))
    machine.read()
    assert Path(file).stat().st_mtime > 0


def test_the_jvm_is_given_these_options_beside_its_own(tmp_path: Path) -> None:
    conf = spark_conf(load({"FIRN_HOME": str(tmp_path)}), [], ("-XX:SharedArchiveFile=/a folder/there",))
    options = shlex.split(conf["spark.driver.extraJavaOptions"])
    assert "-XX:+ExitOnOutOfMemoryError" in options
    assert options[-1] == "-XX:SharedArchiveFile=/a folder/there"
