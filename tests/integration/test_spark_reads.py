"""A Spark of its own reads a table by the settings of docs/how-to/other-engines.md."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from service.host import jars
from service.settings import ROOT
from tests.harness import Firn

PAGE = ROOT / "docs/how-to/other-engines.md"
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
settings, statements = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print(json.dumps([[row.asDict() for row in spark.sql(each).collect()] for each in statements], default=str))
"""


@pytest.mark.thorough
def test_spark_reads_by_the_settings_of_the_guide(firn: Firn, tenant: str) -> None:
    name = tenant.replace("-", "")  # a name of letters and digits is the same in the catalog
    table = {"tenant_id": name, "namespace": "shop", "table": "orders"}
    firn.ok({"operation": "CREATE_TABLE", **table, "schema": {"fields": {"id": {"type": "long"}}}})
    firn.ok({"operation": "WRITE", **table, "records": [{"id": 7}]})
    section = PAGE.read_text().partition("## Spark")[2].partition("\n## ")[0]
    [properties] = re.findall(r"```properties\n(.*?)```", section, re.DOTALL)
    [statements] = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    settings = dict(line.split() for line in properties.replace("/home/ann/.firn", str(firn.home)).splitlines())
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    sql = re.sub(r"'\d{4}-[^']*'", f"'{now}'", statements.replace("demo__", f"{name}__"))
    own = {
        "spark.driver.extraClassPath": ":".join(map(str, jars.locate(jars.LOCK, jars.cache_dir(os.environ)))),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.sql.session.timeZone": "UTC",
    }
    asked = json.dumps([{**settings, **own}, [each.strip() for each in sql.split(";") if each.strip()]])
    done = subprocess.run([sys.executable, "-c", PROGRAM, asked], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [[{"id": 7}], [{"id": 7}]]
