"""Values that Go's readers of YAML and JSON take for others than they look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import BadInput
from workflows.local.language.go_values import parameter_text
from workflows.local.spec.loops import expand_task
from workflows.local.spec.manifest import read


def written(folder: Path, scalar: str, after: str = "") -> Path:
    path = folder / "workflow.yaml"
    path.write_text(f"kind: Workflow\nvalue: {scalar}\nyes: key\n{after}")
    return path


@pytest.mark.parametrize(
    "scalar",
    [
        "010", "0755", "yes", "No", "ON", "Off", "y", "True", "NULL", "1_000", "0x10", "0b11", "0o17",
        "+5", ".5", "5.", "-.inf", ".NaN", "12345678901234567890",
    ],
)  # fmt: skip
def test_a_scalar_that_argo_reads_as_another_value_is_refused(tmp_path: Path, scalar: str) -> None:
    with pytest.raises(BadInput, match=r"line 2: Argo reads .* as another value .*quote it"):
        read(written(tmp_path, scalar))
    assert read(written(tmp_path, f"'{scalar}'"))["value"] == scalar


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("10", 10), ("-3", -3), ("0", 0), ("1.5", 1.5), ("1e-7", 1e-7), ("true", True), ("null", None),
        ("yesterday", "yesterday"), ("10m", "10m"), ("1.2.3", "1.2.3"), ("1e3_", "1e3_"), ("e5", "e5"),
        ("2Gi", "2Gi"), ("12:30:45", "12:30:45"), ("...x", "...x"),
    ],
)  # fmt: skip
def test_all_others_are_what_they_look_like(tmp_path: Path, scalar: str, value: object) -> None:
    assert read(written(tmp_path, scalar))["value"] == value


def test_empty_documents_beside_the_workflow_are_ignored(tmp_path: Path) -> None:
    assert read(written(tmp_path, "x", "---\n"))["value"] == "x"
    assert read(written(tmp_path, "x", "---\n---\n# nothing\n"))["value"] == "x"
    with pytest.raises(BadInput, match="2 documents; allowed: one"):
        read(written(tmp_path, "x", "---\nkind: Workflow\n"))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-7, "0.0000001"), (1e5, "100000"), (1e21, "1" + 21 * "0"), (1.5, "1.5"),
        (12345678901234567890.0, "12345678901234567000"), (5e-324, "0." + 323 * "0" + "5"),
    ],
)  # fmt: skip
def test_a_number_has_as_few_digits_as_tell_it_from_its_neighbours(
    number: float, text: str
) -> None:
    assert parameter_text(number) == text


def test_numbers_of_a_loop_keep_the_text_in_which_they_were_written() -> None:
    task = {
        "name": "t",
        "template": "x",
        "withParam": '[1.0, 1e3, 1.50, {"rate": 1e-4, "n": 10}, 7]',
        "arguments": {"parameters": [{"name": "a", "value": "{{item}}"}]},
    }
    expanded = expand_task(task, {})
    values = [one["arguments"]["parameters"][0]["value"] for one in expanded]
    assert values[:3] == ["1.0", "1e3", "1.50"] and values[4] == "7"
    assert [one["name"] for one in expanded][:2] == ["t(0:1.0)", "t(1:1e3)"]
    assert expanded[3]["name"] == "t(3:n:10,rate:1e-4)"
