"""Two million rows from one CSV file, as a daily load."""

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import DLT, OURS, folder, say
from bench.service import Service

TITLE = "Ingest of a CSV file of 2M rows"
_ROWS = 2_000_000
_ROUNDS = 5
_SPARK = "PySpark read.csv + append"
_DUCKDB = "DuckDB COPY to Parquet"
_DLT = "dlt, Arrow to Parquet"
_DATASET = {
    "columns": [
        {"name": "id", "type": "BIGINT", "nullable": False},
        {"name": "name", "type": "VARCHAR"},
        {"name": "amount", "type": "DOUBLE"},
        {"name": "moment", "type": "TIMESTAMP"},
    ]
}


def measure() -> Section:
    with (
        folder("ingest") as home,
        Service(home / "firn") as service,
        Peer("spark", home, OURS) as spark,
        Peer("files", home) as files,
        Peer("dlt_files", home, DLT) as dlt,
    ):
        source = home / "day.csv"
        spark.ask("open", home=str(home / "spark"))
        size = files.ask("write_csv", path=str(source), count=_ROWS)
        say(f"part 10: {_ROWS:,} rows, {size / 1e6:.0f} MB of CSV")
        took: dict[str, list[float]] = {who: [] for who in (FIRN, _SPARK, _DUCKDB, _DLT)}
        for turn in range(_ROUNDS + 1):
            for who, rates in took.items():
                if who == FIRN:
                    ms = _ingest(service, f"day{turn}", str(source))
                    service.settle()
                elif who == _SPARK:
                    spark.ask("create", table=f"day{turn}")
                    ms = spark.ask("append_csv", table=f"day{turn}", path=str(source))
                elif who == _DUCKDB:
                    ms = files.ask("copy", source=str(source), target=str(home / f"day{turn}.parquet"))
                else:
                    ms = dlt.ask("load", source=str(source), home=str(home / f"dlt{turn}"))
                say(f"part 10: {f'round {turn} of {_ROUNDS}' if turn else 'warming up'}, {who}: {ms / 1000:.2f} s")
                if turn:
                    rates.append(_ROWS / ms * 1000)
    lines = [Line("ingest of a CSV file of 2M rows", who, "rows/s", rates) for who, rates in took.items()]
    return Section(lines, [Claim("ingest rate, of plain PySpark's", ratio(lines[0], lines[1]), "least", 0.8)])


def _ingest(service: Service, table: str, source: str) -> float:
    """Ingest the file into a new table: the milliseconds until the response."""
    service.call("CREATE_TABLE", config={"name": table}, dataset=_DATASET)
    took, found = service.timed("INGEST", table=table, source=source, date="2024-01-31")
    if found["records_ingested"] != _ROWS:
        raise RuntimeError(f"{found['records_ingested']:,} rows of {_ROWS:,} were ingested")
    return took
