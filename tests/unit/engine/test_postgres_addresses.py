"""One address in the settings, and what PyIceberg, the ledger and Spark are each told of it."""

from pathlib import Path

from sqlalchemy.engine import make_url

from service.engine.session.conf import spark_conf
from service.model import postgres
from service.settings import load

URL = "postgresql://fi%40rn:p%2Fw%20%25@db.example.com:5433/lake?sslmode=require"


def test_sqlalchemy_is_told_the_same_place_its_driver_and_how_long_to_wait() -> None:
    result = make_url(postgres.sqlalchemy(URL))
    assert (result.drivername, result.host, result.port, result.database) == (
        "postgresql+psycopg",
        "db.example.com",
        5433,
        "lake",
    )
    assert (result.username, result.password) == ("fi@rn", "p/w %")
    assert (result.query["sslmode"], result.query["connect_timeout"]) == ("require", "5")
    assert result.query["options"] == "-c statement_timeout=30000 -c lock_timeout=30000"


def test_spark_is_told_the_same_place_and_the_password_beside_it() -> None:
    environ = {"FIRN_CATALOG__TYPE": "postgresql", "FIRN_CATALOG__URI": URL, "FIRN_CATALOG__WAREHOUSE": "file:///lake"}
    conf = spark_conf(load(environ), [Path("a.jar")])
    catalog = {k.removeprefix("spark.sql.catalog.firn."): v for k, v in conf.items() if "catalog.firn." in k}
    assert catalog["type"] == "jdbc"
    assert catalog["uri"] == "jdbc:postgresql://db.example.com:5433/lake?sslmode=require"
    assert (catalog["jdbc.user"], catalog["jdbc.password"]) == ("fi@rn", "p/w %")
    assert catalog["jdbc.schema-version"] == "V1"
    assert catalog["warehouse"] == "file:///lake"


def test_where_no_user_is_named_the_driver_takes_its_own_default() -> None:
    result = postgres.jdbc("postgresql://[::1]/lake")
    assert result["uri"] == "jdbc:postgresql://[::1]/lake"
    assert not {"jdbc.user", "jdbc.password"} & result.keys()
