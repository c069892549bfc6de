"""What `precision: auto` makes of measured times, and the probe that measures them."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from agents import devices, load
from agents.checks import precision as probe
from agents.devices import Trials, choose_device, choose_precision, processor_name
from agents.networks.actor_critic import ActorCritic
from config.errors import BadInput, WrongDirectory
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.experiment import Compute, read_compute, settle
from steps.directory.layout import ExperimentDirectory
from steps.page.facts import computed


def trials(fp32_s: tuple[float, ...], bf16_s: tuple[float, ...]) -> Trials:
    return Trials(rows=256, threads=1, fp32_s=fp32_s, bf16_s=bf16_s)


def picture(**given: str) -> Resolved:
    return resolve(
        "ppo",
        {
            "game": "tests.own_games:Picture",
            "num_envs": "4",
            "rollout_length": "8",
            "minibatches": "4",
            "device": "cpu",
            **given,
        },
    )


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "computes_bf16", lambda device: True)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    ("fp32_s", "bf16_s", "precision", "ratio"),
    [
        ((1.7, 1.7, 1.7), (1.0, 1.0, 1.0), "bf16", "1.70"),
        ((1.15, 1.15, 1.15), (1.0, 1.0, 1.0), "bf16", "1.15"),
        ((1.14, 1.14, 1.14), (1.0, 1.0, 1.0), "fp32", "1.14"),
        (
            (2354.0, 2354.0, 2354.0),
            (3431.0, 3431.0, 3431.0),
            "fp32",
            "0.69",
        ),  # measured on an Intel
        ((1.7, 1.7, 1.0), (1.0, 1.0, 9.0), "bf16", "1.70"),  # one disturbed trial
        ((0.7, 9.0, 0.7), (1.0, 1.0, 1.0), "fp32", "0.70"),
        (
            (1.7, 17.0, 170.0),
            (1.0, 10.0, 100.0),
            "bf16",
            "1.70",
        ),  # a machine that slows down, on both sides
    ],
)
def test_the_median_ratio_decides(
    fp32_s: tuple[float, ...], bf16_s: tuple[float, ...], precision: str, ratio: str
) -> None:
    measured = trials(fp32_s, bf16_s)
    found, reason, figures = choose_precision("auto", "cpu", lambda: measured)
    assert (found, figures) == (precision, measured)
    assert reason == f"measured: bf16 is {ratio} x as fast as fp32, taken from 1.15 x on"


def never() -> Trials | None:
    raise AssertionError("measured where nothing is to be decided")


def test_no_probe_where_there_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked in ("fp32", "bf16"):
        assert choose_precision(asked, "cpu", never) == (asked, f"{asked} was asked for", None)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert choose_precision("auto", "cpu", never) == (
        "fp32",
        "no native bf16 arithmetic here",
        None,
    )
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert choose_precision("auto", "cpu", lambda: None) == (
        "fp32",
        "this network is computed in fp32 only",
        None,
    )
    assert choose_precision("auto", "cpu", lambda: trials((2.0,) * 3, (1.0,) * 3))[0] == "bf16"


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(BadInput, match="no usable GPU"):
        choose_device("cuda")
    assert processor_name("cpu")


@pytest.mark.usefixtures("native")
def test_towers_for_vectors_are_not_probed() -> None:
    decision = load.decide(resolve("ppo", {"game": "cartpole", "device": "cpu"}))
    assert (decision.device, decision.precision, decision.trials) == ("cpu", "fp32", None)
    assert decision.reason == "cpu was asked for; this network is computed in fp32 only"


@pytest.mark.usefixtures("native")
def test_the_probe_measures_the_experiment_s_own_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []
    forward = probe._pass_s

    def counted(network: ActorCritic, encoded: torch.Tensor, precision: str, passes: int) -> float:
        order.append((precision, len(encoded)))
        return forward(network, encoded, precision, passes)

    monkeypatch.setattr(probe, "_pass_s", counted)
    monkeypatch.setattr(probe, "TRIAL_S", 0.0)
    decision = load.decide(picture())
    assert decision.trials is not None
    assert (decision.trials.rows, decision.trials.threads) == (8, torch.get_num_threads())
    assert order[-6:] == [("fp32", 8), ("bf16", 8)] * 3
    assert {precision for precision, _ in order[:-6]} == {"fp32", "bf16"}, "both warm"
    assert len(decision.trials.fp32_s) == len(decision.trials.bf16_s) == 3
    assert all(one > 0 for one in decision.trials.fp32_s + decision.trials.bf16_s)


@pytest.mark.usefixtures("native")
def test_a_huge_minibatch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LARGEST_BYTES", 10 * 50 * 41 * 3)
    measured = probe.measure(picture(rollout_length="65536", minibatches="1"), "cpu")
    assert measured is not None and measured.rows == 10


@pytest.mark.usefixtures("native")
def test_generators_and_threads_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: pytest.fail(f"set to {count}"))
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    try:
        resolved = resolve(
            "ppo",
            {
                "game": "tests.own_games:Global",
                "num_envs": "2",
                "rollout_length": "2",
                "minibatches": "1",
            },
        )
        measured = probe.measure(resolved, "cpu")
        assert measured is not None and measured.threads == torch.get_num_threads() == 2
        assert random.getstate() == states[0]
        assert str(np.random.get_state()) == states[1]
        assert torch.equal(torch.get_rng_state(), states[2])
    finally:
        monkeypatch.undo()
        torch.set_num_threads(before)


def test_the_first_record_counts(tmp_path: Path) -> None:
    path = tmp_path / "compute.json"
    assert read_compute(path) is None
    first = {"device": "cpu", "precision": "bf16", "reason": "measured", "probe": {"ratio": 2.0}}
    assert (
        settle(path, first)
        == read_compute(path)
        == Compute(device="cpu", precision="bf16", reason="measured")
    )
    content = path.read_bytes()
    assert settle(path, first | {"precision": "fp32"}).precision == "bf16"
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["compute.json"]


def test_of_many_at_once_all_use_the_same(tmp_path: Path) -> None:
    found: list[str] = []
    barrier = threading.Barrier(8)

    def decide(precision: str) -> None:
        barrier.wait()
        found.append(
            settle(
                tmp_path / "compute.json", {"device": "cpu", "precision": precision, "reason": "x"}
            ).precision
        )

    threads = [
        threading.Thread(target=decide, args=(("fp32", "bf16")[number % 2],)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["compute.json"]


def test_the_report_says_it_with_its_reason(tmp_path: Path) -> None:
    directory = ExperimentDirectory(tmp_path)
    assert computed(directory) == {}
    settle(directory.compute_json, {"device": "cpu", "precision": "bf16", "reason": "measured"})
    assert computed(directory) == {"computed on": "cpu, bf16 (measured)"}
    stepped = {"vectorisation": "async", "vectorisation_reason": "measured: a step takes 3 ms"}
    document = json.loads(directory.compute_json.read_text()) | stepped
    directory.compute_json.write_text(json.dumps(document))
    said = {"environments stepped": "async (measured: a step takes 3 ms)"}
    assert computed(directory) == {"computed on": "cpu, bf16 (measured)"} | said
    said = {"environments stepped": "sync (sync was asked for)"}
    assert computed(directory, "sync") == {"computed on": "cpu, bf16 (measured)"} | said
    directory.compute_json.write_text("{")
    assert computed(directory) == {"computed on": "unknown: compute.json cannot be read"}
    with pytest.raises(WrongDirectory, match=r"compute.json cannot be read .*; delete it"):
        read_compute(directory.compute_json)
