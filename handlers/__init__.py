"""The operations of the service, one a file."""

import importlib
import pkgutil

from service.operations.operation import Operation


def discover() -> list[Operation]:
    """The operation of every module here. A module with none or two, or a name used twice, stops start-up."""
    found: dict[str, Operation] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"handlers.{module_info.name}")
        declared = [value for value in vars(module).values() if isinstance(value, Operation)]
        if len(declared) != 1:
            raise RuntimeError(
                f"handlers/{module_info.name}.py declares {len(declared)} operations; it must declare one"
            )
        name = declared[0].name
        if name in found or name.lower() != module_info.name:
            raise RuntimeError(f"handlers/{module_info.name}.py declares {name}; file and operation must match, once")
        found[name] = declared[0]
    return list(found.values())
