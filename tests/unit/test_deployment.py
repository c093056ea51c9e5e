"""No container engine runs in the tests; this checks of the container's files what can be checked without one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from service import settings
from service.engine.session.conf import spark_conf
from service.settings import ROOT


@pytest.mark.parametrize("file", ["Dockerfile", "docker-compose.yml", "docs/deploy/running.md"])
def test_every_variable_that_deployment_names_is_one(file: str) -> None:
    named = set(re.findall(r"\bFIRN_[A-Z_]*[A-Z]\b", (ROOT / file).read_text()))
    assert named
    assert named <= settings.variables().keys() | settings.NOT_SETTINGS


def test_the_settings_of_the_composition_are_settings_that_fit_its_other_services() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    # Compose takes a variable from its own environment, or else what follows `:-`.
    message = {
        name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        for name, value in services["firn"]["environment"].items()
        if name.startswith("FIRN_")
    }
    found = settings.load({"FIRN_HOME": "/data", "FIRN_PORT": "8080", **message})
    assert (found.environment, found.catalog.type, found.port) == ("production", "rest", 8080)
    assert services["firn"]["ports"] == ["127.0.0.1:8080:8080"]
    properties, catalog = found.catalog.properties, services["catalog"]["environment"]
    assert found.catalog.warehouse == catalog["CATALOG_WAREHOUSE"]
    assert properties["s3.endpoint"] == catalog["CATALOG_S3_ENDPOINT"]
    for address in (found.catalog.uri, properties["s3.endpoint"]):
        assert urlsplit(address).hostname in services
    keys = [services["minio"]["environment"][name] for name in ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")]
    plain = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", key) for key in keys]
    assert [properties["s3.access-key-id"], properties["s3.secret-access-key"]] == plain
    conf = spark_conf(found, [], ())
    assert conf["spark.sql.catalog.firn.uri"] == found.catalog.uri
    assert conf["spark.sql.catalog.firn.s3.endpoint"] == properties["s3.endpoint"]
    assert "bucket" in services["firn"]["depends_on"]
    assert services["bucket"]["entrypoint"][-1].split("/")[1] == urlsplit(found.catalog.warehouse).hostname


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
