"""A DuckDB with extensions from packages, because nothing may be downloaded during a measurement."""

import importlib.util
from pathlib import Path

import duckdb


def connect(*extensions: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in extensions:
        connection.load_extension(str(_path(name)))
    return connection


def _path(name: str) -> Path:
    """Where the wheel of this DuckDB's own version keeps an extension."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec, f"duckdb-extension-{name} is not installed"
    assert spec.submodule_search_locations
    [found] = Path(spec.submodule_search_locations[0]).rglob(f"v{duckdb.__version__}/{name}.duckdb_extension")
    return found
