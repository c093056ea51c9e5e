"""The routes beside `/database`: liveness, readiness, description, and what is not there."""

from tests.harness import Firn


def test_health_needs_nothing_and_says_healthy(firn: Firn) -> None:
    response = firn.client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "healthy", "service": "firn"})


def test_ready_says_ready_once_warm(firn: Firn) -> None:
    response = firn.client.get("/ready")
    assert (response.status_code, response.json()) == (200, {"ready": True, "state": "ready"})


def test_an_unknown_path_names_the_nearest(firn: Firn) -> None:
    error = firn.parsed(firn.client.get("/helth"))["error"]
    assert (error["code"], error["suggestion"]) == ("NOT_FOUND", "/health")


def test_a_wrong_method_names_the_right_one(firn: Firn) -> None:
    response = firn.client.get("/database")
    assert response.status_code == 405
    assert "POST" in firn.parsed(response)["error"]["message"]


def test_the_documentation_page_and_its_description_are_served(firn: Firn) -> None:
    assert "/openapi.json" in firn.client.get("/docs").text
    document = firn.client.get("/openapi.json").json()
    names = document["paths"]["/database"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(names["discriminator"]["mapping"]) == {o.name for o in firn.app.pipeline.operations}


def test_a_callers_request_id_comes_back(firn: Firn) -> None:
    response = firn.client.post("/database", content=b"{}", headers={"X-Request-Id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    assert firn.parsed(response)["metadata"]["request_id"] == "abc-1"


def test_a_body_over_the_limit_is_refused_before_it_is_read(firn: Firn) -> None:
    limit = firn.app.settings.limits.body_mb << 20
    response = firn.client.post("/database", content=b" " * (limit + 1))
    assert response.status_code == 413
    assert firn.parsed(response)["error"]["code"] == "BODY_TOO_LARGE"
