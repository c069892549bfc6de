"""The section `slurm` of a file with the settings of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from config.errors import BadInput
from config.slurm import load_slurm, read_slurm, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60", 3600), ("1:00", 60), ("8:00:00", 28_800), ("2-0", 172_800), ("1-12", 129_600),
        ("1-01:30", 91_800), ("2-00:00:30", 172_830),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0:30", "1h", "1:2:3:4", "-1", "UNLIMITED"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


def test_without_a_file_or_a_section_there_are_defaults(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text("training_memory: 2Gi\n")
    assert load_slurm(profile) == load_slurm() == read_slurm(None) == read_slurm({"gpu": None})


def test_one_file_holds_both_kinds_of_settings(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "training_memory: 2Gi\nslurm: {gpu: {partition: fast, time_limit: 1:00:00}}\n"
    )
    assert load_cluster(profile).training_memory == "2Gi"
    assert load_slurm(profile).gpu.partition == "fast"
    assert load_slurm(profile).gpu.time_limit_s == 3600


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"gpu": {"partitoin": "x"}}, "did you mean 'slurm.gpu.partition'?"),
        ({"gpus": {}}, "did you mean 'slurm.gpu'?"),
        ({"max_jobs": 0}, "'slurm.max_jobs' cannot be 0; allowed: an integer from 1 to 100000"),
        ({"gpu": {"time_limit": "soon"}}, "'slurm.gpu.time_limit' cannot be 'soon'"),
        ({"gpu": {"time_limit": "2:00"}}, "less than the 120 s of that limit"),
        ({"cpu": {"options": ["--job-name=x"]}}, "'slurm.cpu.options[0]' cannot be '--job-name=x'"),
        ({"cpu": {"options": ["nice"]}}, "allowed: an option of sbatch"),
        ({"address": "interface"}, "'slurm.address' cannot be 'interface'"),
        ({"setup": "module load cuda"}, "'slurm.setup' cannot be 'module load cuda'"),
        ([], "'slurm' cannot be []"),
    ],
)
def test_refusals_name_setting_value_and_what_is_allowed(section: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_slurm(section)
    assert said in str(refused.value) and "\n" not in str(refused.value)
