"""The list of software that the service consists of names all of it, and nothing that could not be found."""

import json
import re
from typing import Any

import pytest

from scripts import sbom
from service.host import jars
from service.settings import ROOT

LOCK = (ROOT / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return sbom.sbom()


def test_it_names_every_locked_package_and_jar_with_its_hashes(made: dict[str, Any]) -> None:
    found = {component["purl"]: component for component in made["components"]}
    for name, version in re.findall(r"(?m)^([\w.-]+)(?:\[\S*\])?==([^\s;\\]+)", LOCK):
        assert f"pkg:pypi/{name}@{version}" in found
    for jar in jars.read_lock():
        component = found[f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}"]
        assert component["hashes"] == [{"alg": "SHA-256", "content": jar.sha256}]
    hashes = [h["content"] for c in made["components"] if c["purl"].startswith("pkg:pypi/") for h in c["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", LOCK))


def test_it_names_the_jars_inside_spark_by_their_own_descriptions(made: dict[str, Any]) -> None:
    inside = [c for c in made["components"] if {"name": "firn:inside", "value": "pyspark"} in c.get("properties", ())]
    assert len(inside) > 200
    assert any(c["group"] == "com.google.guava" and c["name"] == "guava" for c in inside if "group" in c)


def test_every_installed_package_has_a_licence(made: dict[str, Any]) -> None:
    without = [c["name"] for c in made["components"] if c["purl"].startswith("pkg:pypi/") and "licenses" not in c]
    # Those of other systems are not installed here.
    assert set(without) <= set(re.findall(r"(?m)^([\w.-]+)==\S+ ;", LOCK))


def test_it_has_the_form_of_cyclonedx(made: dict[str, Any]) -> None:
    """Checked once with the whole schema of version 1.6; these are its rules for what is used here."""
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    assert set(made) == {
        "bomFormat",
        "specVersion",
        "serialNumber",
        "version",
        "metadata",
        "components",
        "dependencies",
    }
    refs = [component["bom-ref"] for component in made["components"]]
    assert len(refs) == len(set(refs))
    for component in made["components"]:
        assert component["type"] == "library"
        assert component["name"]
        assert all(re.fullmatch("[0-9a-f]{64}", h["content"]) for h in component["hashes"])
        for licence in component.get("licenses", ()):
            assert set(licence) == {"expression"} or set(licence["license"]) == {"name"}
    known = {*refs, made["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in made["dependencies"]} == known
    assert {need for each in made["dependencies"] for need in each["dependsOn"]} <= known


def test_all_of_it_is_needed_by_something_in_the_end(made: dict[str, Any]) -> None:
    needs = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    reached, left = set[str](), [made["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += needs[ref]
    assert reached == needs.keys()


def test_it_names_no_host_and_is_the_same_each_time(made: dict[str, Any]) -> None:
    text = json.dumps(made)
    assert "://" not in text
    assert json.dumps(sbom.sbom()) == text
