"""The shape of the code: what lies where, and how large it may get. `lint-imports` checks who may import whom."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from service.settings import ROOT

SERVICE = ROOT / "service"
FILES = sorted([*SERVICE.rglob("*.py"), *(ROOT / "handlers").rglob("*.py")])
LOOSE = {"__init__", "__main__", "app", "settings", "errors"}
MOST_MODULES = 15
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_only_the_composition_the_settings_and_the_errors_lie_in_no_package() -> None:
    assert {path.stem for path in SERVICE.glob("*.py")} <= LOOSE


def test_a_package_holds_few_modules() -> None:
    counts = {
        str(folder.relative_to(ROOT)): len({path.stem for path in folder.glob("*.py")} - {"__init__"})
        for folder in (SERVICE, *SERVICE.rglob("*"))
        if folder.is_dir()
    }
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_a_file_is_read_in_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().split("\n")) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_a_function_is_read_at_one_glance() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in FILES
        for function in functions(path)
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def test_a_public_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for path in SERVICE.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_package_of_the_service_is_in_the_import_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    placed = set(re.findall(r"service\.(\w+)", " ".join(layers)))
    present = {
        path.stem
        for path in SERVICE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.name != "__init__.py"
    }
    assert present <= placed


def test_importing_a_request_model_does_not_load_spark() -> None:
    modules = [
        f"{package}.{path.stem}"
        for package in ("service.operations", "handlers")
        for path in (ROOT / package.replace(".", "/")).glob("*.py")
        if path.stem != "__init__"
    ]
    script = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    script += "print(*{name.partition('.')[0] for name in sys.modules} & {'pyspark'})"
    done = subprocess.run(
        [sys.executable, "-c", script, *modules], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []
