"""The operations of the service, one per file."""

import importlib
import pkgutil

from service.operations.operation import Operation


def discover() -> list[Operation]:
    """The operation of every module here; RuntimeError if a module does not declare exactly one, named as the file."""
    found: list[Operation] = []
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"handlers.{module_info.name}")
        declared = [value for value in vars(module).values() if isinstance(value, Operation)]
        if len(declared) != 1:
            raise RuntimeError(
                f"handlers/{module_info.name}.py declares {len(declared)} operations; it must declare one"
            )
        if declared[0].name.lower() != module_info.name:
            raise RuntimeError(
                f"handlers/{module_info.name}.py declares {declared[0].name}; the file must have the operation's name"
            )
        found += declared
    return found
