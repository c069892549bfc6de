"""The Argo Server client against a real HTTP server: addresses, refusals, and a server that is away
for a while."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from config.cluster import load_cluster
from config.errors import BadInput, ExperimentError
from tests.unit.workflows.loopback_argo import NAMESPACE, TOKEN, LoopbackArgo
from workflows.cluster.server import Address, ArgoServer, LostSight, address
from workflows.dag.render import rendered, with_values

# Hera 7.1 itself calls pydantic's deprecated `json`.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


@pytest.fixture
def argo() -> Iterator[LoopbackArgo]:
    with LoopbackArgo().running() as server:
        yield server


def client(argo: LoopbackArgo, said: list[str] | None = None, **changes: Any) -> ArgoServer:
    where = address({**argo.environment, **changes}, None)
    assert where is not None
    return ArgoServer(
        where, patience_s=5.0, pause_s=0.02, say=(said if said is not None else []).append
    )


def manifest(name: str = "ppo-1") -> dict[str, Any]:
    return with_values(rendered("ppo", load_cluster()), {"runs": "3"}, name=name, deadline_s=60)


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "https://argo:2746/"),
        ({"ARGO_SECURE": "false"}, "http://argo:2746/"),
        ({"ARGO_SECURE": "true", "ARGO_BASE_HREF": "/argo/"}, "https://argo:2746/argo/"),
        ({"ARGO_BASE_HREF": "argo"}, "https://argo:2746/argo/"),
        ({"ARGO_BASE_HREF": "/"}, "https://argo:2746/"),
    ],
)
def test_the_address_as_the_argo_command_reads_it(environment: dict[str, str], url: str) -> None:
    found = address({"ARGO_SERVER": "argo:2746", **environment}, "default")
    assert found == Address(url=url, token="", namespace="default", verify_certificate=True)


def test_the_other_variables() -> None:
    environment = {
        "ARGO_SERVER": "a:1",
        "ARGO_TOKEN": TOKEN,
        "ARGO_NAMESPACE": NAMESPACE,
        "ARGO_INSECURE_SKIP_VERIFY": "true",
    }
    assert address(environment, "other") == Address(
        url="https://a:1/", token=TOKEN, namespace=NAMESPACE, verify_certificate=False
    )
    assert address({"ARGO_TOKEN": TOKEN}, "other") is None


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"ARGO_SERVER": "https://argo:2746", "ARGO_NAMESPACE": "a"}, "ARGO_SERVER"),
        (
            {"ARGO_SERVER": "argo:2746", "ARGO_SECURE": "maybe", "ARGO_NAMESPACE": "a"},
            "ARGO_SECURE",
        ),
        ({"ARGO_SERVER": "argo:2746"}, "ARGO_NAMESPACE"),
    ],
)
def test_a_wrong_address_is_refused(environment: dict[str, str], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        address(environment, None)


def test_what_is_created_is_the_manifest(argo: LoopbackArgo) -> None:
    client(argo).create(manifest())
    assert argo.bodies == [
        {"workflow": {**manifest(), "metadata": argo.workflows["ppo-1"]["metadata"]}}
    ]
    assert (
        argo.workflows["ppo-1"]["metadata"].items()
        >= {key: v for key, v in manifest()["metadata"].items() if key != "annotations"}.items()
    )
    assert argo.workflows["ppo-1"]["metadata"]["name"] == "ppo-1"
    assert argo.workflows["ppo-1"]["spec"] == manifest()["spec"], "Hera's models dropped something"


def test_base_path(argo: LoopbackArgo) -> None:
    with LoopbackArgo(base="behind/a/proxy").running() as server:
        client(server).create(manifest())
        assert client(server).read("ppo-1")["spec"]["entrypoint"] == "experiment"


def test_status_before_and_while_the_controller_works(argo: LoopbackArgo) -> None:
    server = client(argo)
    server.create(manifest())
    node = {
        "id": "n",
        "name": "ppo-1.prepare",
        "displayName": "prepare",
        "type": "Retry",
        "phase": "Running",
        "startedAt": "2026-11-21T12:00:00Z",
    }
    argo.statuses = [
        {},
        {"phase": "Running", "startedAt": "2026-11-21T12:00:00Z", "nodes": {"n": node}},
    ]
    assert server.status("ppo-1") == {}
    assert server.status("ppo-1")["nodes"]["n"].items() >= node.items()
    method, _, query = argo.requests[-1]
    assert method == "GET" and "status.nodes" in query["fields"][0], (
        "a reply with the whole spec each time is large"
    )


def test_a_name_is_taken(argo: LoopbackArgo) -> None:
    client(argo).create(manifest())
    with pytest.raises(BadInput, match="'ppo-1' exists already"):
        client(argo).create(manifest())


def test_a_lost_answer_is_no_second_submission(argo: LoopbackArgo) -> None:
    argo.lost_answers = 1
    client(argo).create(manifest())
    assert len(argo.bodies) == 2 and list(argo.workflows) == ["ppo-1"]


def test_a_name_is_taken_while_the_server_is_away(argo: LoopbackArgo) -> None:
    """The first attempt never reached it: what exists under that name is somebody else's."""
    client(argo).create(manifest())
    argo.broken = [0]
    with pytest.raises(BadInput, match="'ppo-1' exists already"):
        client(argo).create(manifest())


@pytest.mark.parametrize("broken", [[0, 0, 0], [503, 502], [0, 500, 504]])
def test_a_server_that_is_away_is_forgiven(argo: LoopbackArgo, broken: list[int]) -> None:
    said: list[str] = []
    server = client(argo, said)
    server.create(manifest())
    argo.broken, argo.statuses = list(broken), [{"phase": "Running"}]
    assert server.status("ppo-1")["phase"] == "Running"
    assert len(said) == 1 and "trying again" in said[0]


def test_but_not_for_ever(argo: LoopbackArgo) -> None:
    where = address(argo.environment, None)
    assert where is not None
    argo.broken = [503] * 1000
    with pytest.raises(ExperimentError, match="has not answered for 0 s") as raised:
        ArgoServer(where, patience_s=0.2, pause_s=0.02, say=lambda text: None).status("ppo-1")
    assert not isinstance(raised.value, BadInput)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    where = Address(url=f"http://127.0.0.1:{port}/", token="", namespace="a")
    said: list[str] = []
    with pytest.raises(ExperimentError, match="has not answered"):
        ArgoServer(where, patience_s=0.1, pause_s=0.02, say=said.append).status("x")
    assert "cannot be reached" in said[0]


def test_refusals_are_not_repeated(argo: LoopbackArgo) -> None:
    with pytest.raises(BadInput, match="ARGO_TOKEN"):
        client(argo, ARGO_TOKEN="Bearer stolen").create(manifest())
    with pytest.raises(BadInput, match='"ppo-9" not found'):
        client(argo).status("ppo-9")
    assert len(argo.requests) == 2


def test_a_refusal_after_a_good_answer_is_no_bad_input(argo: LoopbackArgo) -> None:
    server = client(argo)
    server.create(manifest())
    argo.allowed = "another"
    with pytest.raises(LostSight, match="does not accept ARGO_TOKEN"):
        server.status("ppo-1")
    argo.allowed, argo.workflows = TOKEN, {}
    with pytest.raises(ExperimentError, match="it was deleted") as raised:
        server.status("ppo-1")
    assert type(raised.value) is ExperimentError


def test_the_last_lines_of_a_pod(argo: LoopbackArgo) -> None:
    server = client(argo)
    server.create(manifest())
    argo.printed["ppo-1-train-7"] = [*(f"line {i}" for i in range(30)), "", "the last"]
    assert server.last_lines("ppo-1", "ppo-1-train-7", 3) == ["line 29", "", "the last"]
    assert (
        server.last_lines("ppo-1", "ppo-1-train-8", 2) == server.last_lines("ppo-9", "x", 2) == []
    )
    argo.broken = [0, 503]
    assert (
        server.last_lines("ppo-1", "ppo-1-train-7", 2)
        == server.last_lines("ppo-1", "ppo-1-train-7", 2)
        == []
    )


def test_the_token_is_in_no_message(argo: LoopbackArgo) -> None:
    with pytest.raises(BadInput) as raised:
        client(argo, ARGO_TOKEN="Bearer canary-4711").create(manifest())
    assert "canary-4711" not in str(raised.value)


def test_plain_http_where_https_is_expected(argo: LoopbackArgo) -> None:
    with pytest.raises(BadInput, match="ARGO_SECURE=false"):
        client(argo, ARGO_SECURE="true").status("ppo-1")


def test_a_server_that_says_nothing_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.cluster.server.ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = Address(url=f"http://127.0.0.1:{silent.getsockname()[1]}/", token="", namespace="a")
        with pytest.raises(ExperimentError, match="has not answered"):
            ArgoServer(where, patience_s=0.1, pause_s=0.02, say=lambda text: None).status("x")
