"""Whether queries get a process of their own, by the memory of the machine."""

from pathlib import Path

import pytest

from service.host import memory
from service.host.memory import GB, query_process, size, total
from service.settings import Settings, SettingsError, SparkSettings, load


def settings(**spark: str) -> Settings:
    return Settings(spark=SparkSettings.model_validate(spark))


@pytest.mark.parametrize(
    ("spark", "gb", "expected"),
    [
        ({}, 4, False),
        ({}, 7.7, True),  # a machine of 8 GB has a little less
        ({}, 24, True),
        ({"driver_memory": "1g"}, 5, True),
        ({"driver_memory": "1g", "query_memory": "4g"}, 7.7, False),
        ({"driver_memory": "16g"}, 24, False),
        ({"driver_memory": "16g", "query_memory": "4096m"}, 24, True),
        ({"master": "spark://master:7077"}, 24, False),
        ({"processes": "2"}, 2, True),
        ({"processes": "2", "master": "spark://master:7077"}, 2, True),
        ({"processes": "1"}, 24, False),
    ],
)
def test_a_service_has_two_processes_if_the_memory_suffices_or_it_is_told_to(
    spark: dict[str, str], gb: float, expected: bool
) -> None:
    assert query_process(settings(**spark), serves_others=True, memory=int(gb * GB)) is expected


def test_what_serves_only_its_own_commands_has_one_unless_it_is_told_otherwise() -> None:
    assert not query_process(settings(), serves_others=False, memory=64 * GB)
    assert query_process(settings(processes="2"), serves_others=False, memory=64 * GB)


def test_a_limit_of_the_container_counts(tmp_path: Path) -> None:
    limit, none, absent = tmp_path / "memory.max", tmp_path / "other", tmp_path / "absent"
    limit.write_text("4294967296\n")
    none.write_text("max\n")
    assert total([limit, none, absent]) == 4 * GB
    limit.write_text(f"{1 << 62}\n")  # version 1 shows no limit so
    assert total([limit]) == total([]) == total([none]) > GB // 4


def test_heaps_are_read_as_java_reads_them() -> None:
    assert [size(text) for text in ("512k", "600m", "2g", "2G")] == [512 << 10, 600 << 20, 2 * GB, 2 * GB]
    assert memory.total() > 0


@pytest.mark.parametrize(("value", "expected"), [("1", "1"), ("2", "2"), ("auto", "auto")])
def test_the_number_of_processes_is_a_setting(value: str, expected: str) -> None:
    assert load({"FIRN_SPARK__PROCESSES": value}).spark.processes == expected
    if value.isdigit():
        assert SparkSettings.model_validate({"processes": int(value)}).processes == expected


@pytest.mark.parametrize("value", ["0", "3", "two", ""])
def test_no_other_number_is(value: str) -> None:
    with pytest.raises(SettingsError, match="FIRN_SPARK__PROCESSES"):
        load({"FIRN_SPARK__PROCESSES": value})
