def test_the_service_answers(firn, tenant):
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "t", "schema": {"fields": {"id": {"type": "long"}}}})
    assert firn.client.get("/health").json()["status"] == "healthy"
    assert firn.client.get("/docs").status_code == 200
    assert firn.client.get("/openapi.json").json()["openapi"].startswith("3.1")
    print(firn.client.get("/nope").json(), firn.client.get("/database").json())
