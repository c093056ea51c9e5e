"""YAML as people mean it: a key stands once, and a time is the text that was written."""

from typing import Any

import yaml


class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it ships no types
    """The safe loader, less what surprises."""


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is not text; put it in quotes", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"{key!r} stands there twice; leave one out", key_node.start_mark
            )
        seen.add(key)
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
