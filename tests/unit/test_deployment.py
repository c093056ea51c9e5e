"""No container engine runs in the tests; this checks of the container's files what can be checked without one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service import settings
from service.settings import ROOT


@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml", "docs/deploy/running.md"])
def test_every_variable_that_deployment_names_is_one(file: str) -> None:
    named = set(re.findall(r"\bFIRN_[A-Z_]*[A-Z]\b", (ROOT / file).read_text()))
    assert named
    assert named <= settings.variables().keys() | settings.NOT_SETTINGS


def test_what_the_image_copies_is_there() -> None:
    copied = [source for line in _copies() for source in line[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_layer_that_fetches_the_jars_holds_all_that_fetching_imports(tmp_path: Path) -> None:
    for *sources, target in _copies():
        if not target.startswith("service/"):
            continue
        if (ROOT / sources[0]).is_dir():
            shutil.copytree(ROOT / sources[0], tmp_path / target)
            continue
        (tmp_path / target).mkdir()
        for source in sources:
            shutil.copy(ROOT / source, tmp_path / target)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jars.lock").touch()
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"'\n")
    java.chmod(0o755)
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk"), "FIRN_CACHE": str(tmp_path / "jars")}
    done = subprocess.run(
        [sys.executable, "-m", "service", "jars", "--fetch-only"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, f"0 jars are in {tmp_path / 'jars'}\n")


def _copies() -> list[list[str]]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return [line.split() for line in lines]
