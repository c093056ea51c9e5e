"""What the engine takes for granted of the JVM it talks to."""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine import translate
from tests.harness import Firn


def test_every_exception_that_is_translated_by_name_exists(firn: Firn) -> None:
    """A name spelled wrongly would never be noticed: its exception would only never come."""

    def missing(session: SparkSession) -> list[str]:
        jvm: Any = session._jvm
        loader = jvm.Thread.currentThread().getContextClassLoader()
        return [name for name in translate._BY_CLASS if not exists(jvm, name, loader)]

    def exists(jvm: Any, name: str, loader: Any) -> bool:
        try:
            return bool(jvm.Class.forName(name, False, loader).getName() == name)
        except Py4JJavaError:
            return False

    assert firn.app.engine.run(missing) == []
