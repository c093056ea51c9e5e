"""The documentation site: its sections, the tasks that a reader finds in it, and that it fetches nothing."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from service import settings
from service.settings import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# What a reader must be able to do by the documentation alone: the page, and what has to be on it.
TASKS = {
    "load a CSV of 5 GB": ("how-to/load-files.md", "-T hits.csv"),
    "take a file a day": ("how-to/daily-files.md", "```cron\n15 3 * * *"),
    "preview an upsert, then commit exactly that": ("how-to/upsert.md", '"plan_token": "'),
    "compact all tables every night by cron": ("how-to/nightly-compaction.md", "```cron\n30 2 * * *"),
    "compact all tables every night by EventBridge": ("how-to/nightly-compaction.md", '"source": "aws.events"'),
    "run on S3 and Glue": ("deploy/s3-and-glue.md", "glue:UpdateTable"),
    "run three instances": ("deploy/several-instances.md", "FIRN_LEDGER__URL"),
    "read a table as it was": ("how-to/time-travel.md", '"as_of": "'),
    "undo yesterday's mistake": ("how-to/fix-a-bad-change.md", '"operation": "UNDO"'),
    "repartition after an estimate": ("how-to/repartition.md", '"estimate": true'),
    "watch with Prometheus": ("deploy/monitoring.md", "scrape_configs"),
    "read from DuckDB": ("how-to/other-engines.md", "iceberg_scan"),
    "read from Spark": ("how-to/other-engines.md", "org.apache.iceberg.spark.SparkCatalog"),
    "read from PyIceberg": ("how-to/other-engines.md", "load_catalog"),
    "rename a table": ("how-to/rename-and-drop.md", '"operation": "RENAME_TABLE"'),
    "delete a table": ("how-to/rename-and-drop.md", '"purge": true'),
    "use Firn from Python": ("start/python.md", "import httpx"),
}


def test_the_sections_are_five() -> None:
    assert [title for section in SITE["nav"] for title in section] == [
        "Start",
        "How-to",
        "Deploy",
        "Reference",
        "Explanation",
    ]


@pytest.mark.parametrize(("page", "text"), TASKS.values(), ids=TASKS.keys())
def test_a_task_has_its_page_in_the_navigation(page: str, text: str) -> None:
    assert page in set(_pages(SITE["nav"]))
    assert text in (ROOT / "docs" / page).read_text()


def test_the_index_of_tasks_links_the_page_of_each_and_every_how_to() -> None:
    index = ROOT / "docs/how-to/index.md"
    assert index.read_text().startswith("# What do you want to do?")
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)", index.read_text())}
    assert {(ROOT / "docs" / page).resolve() for page, _ in TASKS.values()} <= linked
    assert set(index.parent.glob("*.md")) - {index} <= linked
    assert "how-to/index.md" in set(_pages(SITE["nav"]))
    assert "(how-to/index.md)" in (ROOT / "docs/index.md").read_text()


def test_a_broken_link_and_a_page_outside_the_navigation_fail_the_build() -> None:
    assert SITE["strict"] is True
    checks = {name: level for part in SITE["validation"].values() for name, level in part.items()}
    assert set(checks.values()) == {"warn"}  # `strict` makes an error of each
    assert {"omitted_files", "not_found", "anchors", "unrecognized_links"} <= set(checks)


def test_the_site_fetches_nothing_from_other_hosts() -> None:
    assert SITE["theme"]["font"] is False
    assert "extra_javascript" not in SITE
    for style in SITE["extra_css"]:
        assert not re.search(r"@import|url\(", (ROOT / "docs" / style).read_text()), style
    for page in PAGES:
        assert not re.search(r"!\[[^\]]*\]\(https?:|<(img|script|iframe|link)\b", page.read_text()), page
    # The theme would fetch a library for these.
    assert not [page for page in PAGES if "```mermaid" in page.read_text()]


@pytest.mark.parametrize("page", [page for page in PAGES if "export FIRN_" in page.read_text()], ids=lambda p: p.name)
def test_the_settings_that_a_page_exports_are_accepted(page: Any) -> None:
    lines = re.findall(r"^export (.+)$", page.read_text(), re.MULTILINE)
    exported = dict(shlex.split(line, comments=True)[0].partition("=")[::2] for line in lines)
    settings.load({name: value for name, value in exported.items() if name.startswith("FIRN_")})


def test_every_variable_that_a_page_names_is_one() -> None:
    known = settings.variables().keys() | settings.NOT_SETTINGS
    for page in PAGES:
        named = set(re.findall(r"\bFIRN_[A-Z_]*[A-Z]\b(?!__?…)", page.read_text()))
        assert named <= known, page


def _pages(nav: Any) -> Iterator[str]:
    for entry in nav:
        for part in entry.values() if isinstance(entry, dict) else (entry,):
            yield from (part,) if isinstance(part, str) else _pages(part)
