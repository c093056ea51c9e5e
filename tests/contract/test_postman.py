"""The Postman collection, run by newman against the service."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.marks import thorough_after

POSTMAN = Path(__file__).parents[2] / "postman"
NEWMAN = POSTMAN / "node_modules" / ".bin" / "newman"
COLLECTION = POSTMAN / "S3_ACID_Database.postman_collection.json"


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is missing: the Postman collection was not run")
@pytest.mark.skipif(
    not NEWMAN.exists(), reason="newman is missing: run `npm ci` in postman/; the collection was not run"
)
@pytest.mark.parametrize("whole", thorough_after(1, [False, True]))
def test_every_assertion_of_the_collection_holds_also_when_it_is_run_again(
    firn: Firn, tenant: str, tmp_path: Path, whole: bool
) -> None:
    """Besides its session, the collection holds the handlers' examples, which other tests send too."""
    if whole:
        stats = newman(firn, tenant, tmp_path / "all.json")
        assert stats["requests"]["total"] == stats["items"]["total"] > 50
        assert stats["assertions"]["total"] > 300
    again = newman(firn, tenant, tmp_path / "again.json", "--folder", "A session")
    assert again["requests"]["total"] == 18


def newman(firn: Firn, tenant: str, report: Path, *more: str) -> dict[str, Any]:
    """The figures of a run in which nothing failed."""
    done = subprocess.run(
        [
            *(str(NEWMAN), "run", str(COLLECTION), *more),
            *("-e", str(POSTMAN / "environments" / "Development.postman_environment.json")),
            *("--env-var", f"base_url={firn.base_url}", "--env-var", f"tenant_id={tenant}"),
            *("--reporters", "cli,json", "--reporter-json-export", str(report)),
            *("--color", "off", "--timeout-request", "60000"),
        ],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert report.exists(), done.stdout + done.stderr
    run = json.loads(report.read_text())["run"]
    assert [f"{f['source']['name']}: {f['error']['test']}: {f['error']['message']}" for f in run["failures"]] == []
    assert done.returncode == 0, done.stdout[-3000:]
    assert not run["stats"]["assertions"]["failed"]
    stats: dict[str, Any] = run["stats"]
    return stats
