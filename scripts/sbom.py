"""`make sbom`: the software that the service consists of, as CycloneDX JSON, for a scanner of your choice.

It reads the lock files, the installed packages and the jars on disk, and needs no network. The same input gives the
same output.
"""

import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from service import VERSION
from service.host import jars
from service.settings import ROOT

OUTPUT = ROOT / "dist" / "firn-sbom.cdx.json"
PROJECT = "firn-lake"
_PACKAGE = re.compile(r"(?m)^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_USED_BY = re.compile(r"(?m)^    # +(?:via )?([a-z0-9][a-z0-9._-]*)")
_JAR = re.compile(r"(.+?)-(\d[\w.+-]*)\.jar")
_LONGEST_LICENCE = 100


@dataclass(frozen=True)
class Package:
    """A package of a lock file: the hashes of its files, and the packages that need it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    used_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{quote(self.version)}"


def main() -> None:
    written = sbom()
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(written, indent=2) + "\n")
    print(f"firn: wrote {OUTPUT.relative_to(ROOT)}: {len(written['components'])} components")


def sbom() -> dict[str, Any]:
    packages = read_lock((ROOT / "requirements.lock").read_text())
    main_ref = f"pkg:pypi/{PROJECT}@{VERSION}"
    components = [*map(_python, packages), *_own_jars(), *_jars_of_spark()]
    parts = [c["bom-ref"] for c in components if c["purl"].startswith("pkg:maven/") and "properties" not in c]
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": main_ref,
                "name": PROJECT,
                "version": VERSION,
                "purl": main_ref,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": _dependencies(packages, main_ref, parts, components),
    }
    digest = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(made, sort_keys=True))
    return {
        "bomFormat": made.pop("bomFormat"),
        "specVersion": made.pop("specVersion"),
        "serialNumber": digest.urn,
        **made,
    }


def read_lock(text: str) -> list[Package]:
    starts = [match.start() for match in _PACKAGE.finditer(text)] + [len(text)]
    found = []
    for start, end in pairwise(starts):
        entry = text[start:end]
        match = _PACKAGE.match(entry)
        assert match is not None
        found.append(Package(match[1], match[2], tuple(_HASH.findall(entry)), tuple(_USED_BY.findall(entry))))
    return found


def _python(package: Package) -> dict[str, Any]:
    licence = _licence_of(package.name)
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "hashes": [{"alg": "SHA-256", "content": content} for content in package.hashes],
        **({"licenses": licence} if licence else {}),
    }


def _licence_of(name: str) -> list[dict[str, Any]]:
    """The licence of an installed package, as it declares it; nothing if it is not installed here."""
    try:
        declared = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if expression := declared.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        text.rpartition(" :: ")[2] for text in declared.get_all("Classifier") or () if text.startswith("License ::")
    ]
    stated = (declared.get("License") or "").strip().partition("\n")[0]
    names = classified or ([stated] if stated and len(stated) <= _LONGEST_LICENCE else [])
    return [{"license": {"name": each}} for each in names]


def _own_jars() -> Iterator[dict[str, Any]]:
    """The jars that Firn fetches."""
    for jar in jars.read_lock():
        yield _jar(jar.group, jar.artifact, jar.version, jar.sha256)


def _jars_of_spark() -> Iterator[dict[str, Any]]:
    """The jars inside the package pyspark, which scanners of Python packages miss; none if it is not installed."""
    try:
        files = metadata.files("pyspark") or ()
    except metadata.PackageNotFoundError:
        return
    seen = set()
    for path in sorted(str(file.locate()) for file in files if re.fullmatch(r"pyspark/jars/[^/]+\.jar", str(file))):
        content = Path(path).read_bytes()
        component = _jar(*_identity(Path(path)), hashlib.sha256(content).hexdigest())
        if component["bom-ref"] not in seen:
            seen.add(component["bom-ref"])
            yield {**component, "properties": [{"name": "firn:inside", "value": "pyspark"}]}


def _identity(path: Path) -> tuple[str, str, str]:
    """The group, the artifact and the version of a jar, by its own description or by the name of its file."""
    match = _JAR.fullmatch(path.name)
    artifact, version = (match[1], match[2]) if match else (path.stem, "")
    with zipfile.ZipFile(path) as jar:
        described = [name for name in jar.namelist() if name.endswith(f"/{artifact}/pom.properties")]
        if not described:
            return "", artifact, version
        lines = jar.read(described[0]).decode().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return values.get("groupId", ""), values.get("artifactId", artifact), values.get("version", version)


def _jar(group: str, artifact: str, version: str, sha256: str) -> dict[str, Any]:
    place = f"{quote(group)}/{quote(artifact)}" if group else quote(artifact)
    purl = f"pkg:maven/{place}@{quote(version)}"
    return {
        "type": "library",
        "bom-ref": purl,
        **({"group": group} if group else {}),
        "name": artifact,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def _dependencies(
    packages: list[Package], main_ref: str, own_jars: list[str], components: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    refs = {package.name: package.purl for package in packages} | {PROJECT: main_ref}
    needs: dict[str, list[str]] = {ref: [] for ref in (main_ref, *(component["bom-ref"] for component in components))}
    for package in packages:
        for user in package.used_by:
            if user in refs:
                needs[refs[user]].append(package.purl)
    needs[main_ref] += own_jars
    if "pyspark" in refs:
        needs[refs["pyspark"]] += [component["bom-ref"] for component in components if "properties" in component]
    return [{"ref": ref, "dependsOn": sorted(set(found))} for ref, found in needs.items()]


if __name__ == "__main__":
    sys.exit(main())
