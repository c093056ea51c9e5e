"""Files of earlier states are read under columns none of which is required."""

from typing import Any

from service.engine.sql.past import loosened


def column(number: int, name: str, kind: str = "long", *, required: bool = False) -> dict[str, Any]:
    return {"id": number, "name": name, "type": kind, "required": required}


def test_no_column_is_required_and_what_a_table_has_beside_them_has_a_name_that_nobody_asks_for() -> None:
    first = [column(1, "id", "int", required=True), column(2, "day", "date")]
    second = [column(1, "id", required=True), column(3, "day", "string", required=True)]
    schemas = {0: {"fields": first, "identifier-field-ids": [1]}, 4: {"fields": second, "schema-id": 4}}
    assert loosened(schemas, 4) == {
        "type": "struct",
        "fields": [column(1, "id"), column(3, "day", "string"), column(2, "_firn_2", "date")],
    }
    assert loosened(schemas, 0)["fields"] == [
        column(1, "id", "int"),
        column(2, "day", "date"),
        column(3, "_firn_3", "string"),
    ]
