"""The import arrows are checked by `lint-imports`; this checks that they bind every module."""

import re
import tomllib

from service.settings import ROOT


def test_every_module_of_the_service_has_a_place_in_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    placed = set(re.findall(r"service\.(\w+)", " ".join(layers)))
    present = {
        path.stem
        for path in (ROOT / "service").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.name != "__init__.py"
    }
    assert present <= placed
