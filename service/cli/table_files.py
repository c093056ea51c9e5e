"""What commands read of a table file, the YAML file from which a table that takes a file a day is made."""

from datetime import date
from pathlib import Path
from typing import Any

from service.cli.command import Args, Request, UsageError
from service.cli.files import is_file, is_table_file, read_object, read_text


def table_file(args: Args) -> dict[str, Any] | None:
    """The table file that the argument TABLE|FILE is; None if it is a name, or a file of another kind."""
    found = read_object(args.table) if is_file(args.table) else {}
    return found if is_table_file(found) else None


def dataset_path(table: dict[str, Any]) -> str | None:
    """The path of the dataset file that a table file names."""
    ingestion = table.get("ingestion")
    path = ingestion.get("dataset_config") if isinstance(ingestion, dict) else None
    return path if isinstance(path, str) and path else None


def date_format(args: Args) -> str:
    """How names of files have the date, as the command's table file says."""
    partitioning = (table_file(args) or {}).get("partitioning")
    given = partitioning.get("date_format") if isinstance(partitioning, dict) else None
    return given if isinstance(given, str) else "%Y-%m-%d"


def read_dataset(path: str, option: str) -> str:
    """The text of a dataset file, whose relative path starts at the working directory."""
    try:
        return read_text(path)
    except UsageError as e:
        raise UsageError(f"{option}: {e}; a relative path starts at the working directory, {Path.cwd()}") from e


def config_fields(args: Args, url: str | None) -> Request:
    """The fields `config` and `dataset` of a request: the texts of the table file and of its dataset file.

    They are sent as they are, so that errors name the line. Only for a service of this machine relative paths become
    absolute, because its working directory is another one than the command's.
    """
    table = table_file(args)
    if table is None:
        raise UsageError(f"{args.table} is not a table file; name a YAML file that has the table's name and the rest")
    text = read_text(args.table)
    path, option = args.dataset_config or dataset_path(table), "--dataset-config"
    if not args.dataset_config:
        option = f"{args.table}: ingestion.dataset_config"
    dataset = {"dataset": read_dataset(path, option)} if path else {}
    return {"config": text if url else with_absolute_paths(text), **dataset}


def with_absolute_paths(text: str) -> str:
    """The text of a table file in which the local folders that it names are absolute paths; its lines stay."""
    import yaml

    from service.ingest.yaml_loader import Loader

    root = yaml.compose(text, Loader)
    found = [_scalar(root, "storage", "base_path"), _scalar(root, "ingestion", "watch", "folder")]
    for node in sorted(filter(None, found), key=lambda node: -node.start_mark.index):
        path = str(node.value)
        if not path or "://" in path or node.start_mark.line != node.end_mark.line:
            continue
        absolute = str(Path(path).expanduser().absolute()) + ("/" if path.endswith("/") else "")
        quoted = "'" + absolute.replace("'", "''") + "'"
        text = text[: node.start_mark.index] + quoted + text[node.end_mark.index :]
    return text


def exported_file(args: Args, day: date) -> str | None:
    """The exported file of a day, as the command's table file names it; None if there is none on this machine."""
    found = table_file(args)
    storage = (found or {}).get("storage")
    if found is None or found.get("export") is not True or not isinstance(storage, dict):
        return None
    from service.model.ingest.patterns import fill
    from service.model.ingest.table_file import TableFile

    table = TableFile.model_validate(found)
    path = Path(storage["base_path"]) / fill(table.daily_pattern, day, table.partitioning.date_format)
    return str(path) if path.expanduser().is_file() else None


def shown_path(path: str) -> str:
    """A path as people write it: relative if it is below the working directory."""
    folder = f"{Path.cwd()}/"
    return path.removeprefix(folder) or path


def _scalar(node: Any, *keys: str) -> Any:
    """The node of a text in a YAML document; None if there is none."""
    import yaml

    for key in keys:
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in entries if name.value == key), None)
    return node if isinstance(node, yaml.ScalarNode) else None
