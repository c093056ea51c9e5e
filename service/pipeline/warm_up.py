"""The first jobs of every kind, run at start-up, so that no user's request is the slow first one."""

import uuid

from service.catalog.files.staging import INTERNAL_TENANT, WARM_UP_NAMESPACE
from service.catalog.tables import Catalog
from service.engine.queries.engine import QueryEngine
from service.engine.queries.warm import touch
from service.engine.session.engine import Engine
from service.model.names import TableName
from service.pipeline.pipeline import Pipeline

_FIELDS = {"id": {"type": "long", "required": True}, "name": {"type": "string"}, "at": {"type": "timestamptz"}}


def warm_up(pipeline: Pipeline, engine: Engine, queries: QueryEngine, catalog: Catalog) -> None:
    """Run one of each kind of job on a table of our own, through the same handlers that serve users.

    A process for queries starts after the first changes, which it would delay, and beside the others.
    """
    table = f"warm-{uuid.uuid4().hex[:12]}"
    name = TableName(INTERNAL_TENANT, WARM_UP_NAMESPACE, table)
    address = {"tenant_id": name.tenant, "namespace": name.namespace, "table": table}

    def ask(operation: str, **fields: object) -> None:
        found, request = pipeline.parse({"operation": operation, **address, **fields}, trusted=True)
        pipeline.run(found, request, "warm-up")

    record = {"id": 1, "name": "a", "at": "2024-01-01T00:00:00Z"}
    ask("CREATE_TABLE", schema={"fields": _FIELDS, "primary_key": ["id"]})
    try:
        spark_name = catalog.load(name).spark_name
        ask("WRITE", records=[record])
        ask("WRITE", records=[{**record, "id": 2}])
        engine.run_on_all(lambda session: touch(session, spark_name))
        queries.start()
        ask("UPSERT", records=[record])
        ask("UPDATE", updates={"name": "b"}, filter={"id": 1})
        ask("DELETE", filter={"id": 2})
        ask("WRITE", records=[record])
        ask("COMPACT", force=True)
        queries.warm(spark_name)
        ask("QUERY", filter={"id": {"gte": 1}}, sort=["id"])
        ask("QUERY", aggregations=[{"op": "count"}], group_by=["name"])
    finally:
        ask("DROP_TABLE", purge=True, confirm=True)
