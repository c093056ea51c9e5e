"""The queries of TPC-H, and its data as files."""

import re
import subprocess
import sys
from pathlib import Path

TABLES = ("lineitem", "orders", "customer", "partsupp", "part", "supplier", "nation", "region")


def queries() -> dict[str, str]:
    """The text of each query, by its name: Q1 to Q22."""
    text = (Path(__file__).parent / "queries.sql").read_text()
    parts = re.split(r"^-- (Q\d+)\n", text, flags=re.MULTILINE)[1:]
    return {name: query.strip() for name, query in zip(parts[::2], parts[1::2], strict=True)}


def generate(folder: Path, scale: float) -> None:
    """Write a Parquet file of each table."""
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", str(scale), "-o", str(folder)], check=True, capture_output=True)
