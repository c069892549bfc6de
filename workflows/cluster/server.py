"""The Argo Server, through Hera: create a workflow, read its status, and tolerate a server that is
away for a while.

Hera posts to the Argo Server's REST interface and reads no environment variables; this module reads
them as the `argo` command does. `exchange` bounds each request. Importing Hera takes more than a
second, so it happens when a server is connected.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from config.errors import BadInput, ExperimentError, on_one_line, shown

if TYPE_CHECKING:
    from hera.workflows import WorkflowsService
    from pydantic import BaseModel

Result = TypeVar("Result")
CONNECT_S, ANSWER_S, PAUSE_S = 5.0, 30.0, 2.0
"""Time to connect, time for the whole answer, and pause before the next attempt."""
CREATE_PATIENCE_S = 3 * ANSWER_S
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What Hera raises for an answer that is not Argo's: a proxy's page, a list, a document nested too
deeply.
"""
LONGEST_REASON = 300
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
SUBMISSION = "rl-training-dag/submission"
"""Annotation with a unique number for each submission. It tells whether a workflow that exists
already is the one that was sent.
"""
STATUS_FIELDS = "metadata.name,spec.entrypoint,status.phase,status.message,status.startedAt,status.finishedAt,status.nodes"


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the server is. url ends with the base path and a slash. token may be empty if the
    server asks for none.
    """

    url: str
    token: str = field(repr=False)
    namespace: str
    verify_certificate: bool = True


def address(environment: Mapping[str, str], default_namespace: str | None) -> Address | None:
    """The server of `ARGO_SERVER` (`host:port`), `ARGO_TOKEN`, `ARGO_NAMESPACE`, `ARGO_SECURE`,
    `ARGO_INSECURE_SKIP_VERIFY` and `ARGO_BASE_HREF`; None without `ARGO_SERVER`. Raises `BadInput`.
    """
    server = environment.get("ARGO_SERVER", "")
    if not server:
        return None
    if "@" in server:
        raise BadInput(
            "ARGO_SERVER cannot hold a name or a password; allowed: host:port, and the token in ARGO_TOKEN"
        )
    if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", server):
        allowed = "host:port, without a scheme (ARGO_SECURE=false for plain HTTP)"
        raise BadInput(f"ARGO_SERVER cannot be {shown(server)}; allowed: {allowed}")
    namespace = environment.get("ARGO_NAMESPACE") or default_namespace
    if not namespace:
        raise BadInput("which namespace? set ARGO_NAMESPACE, or namespace in the --cluster file")
    if not re.fullmatch(NAMESPACE, namespace):
        raise BadInput(
            f"ARGO_NAMESPACE cannot be {shown(namespace)}; allowed: up to 63 of a-z, 0-9 and '-', not at the ends"
        )
    scheme = "https" if _switch(environment, "ARGO_SECURE", default=True) else "http"
    base = environment.get("ARGO_BASE_HREF", "").strip("/")
    if not re.fullmatch(r"[A-Za-z0-9._~/-]*", base):
        raise BadInput(f"ARGO_BASE_HREF cannot be {shown(base)}; allowed: a path such as /argo/")
    return Address(
        url=f"{scheme}://{server}/{base}/" if base else f"{scheme}://{server}/",
        token=_token(environment),
        namespace=namespace,
        verify_certificate=not _switch(environment, "ARGO_INSECURE_SKIP_VERIFY", default=False),
    )


def _token(environment: Mapping[str, str]) -> str:
    """`Bearer …`, without the line break that `$(cat file)` in double quotes or a mounted secret
    leaves. No message ever contains it.
    """
    token = environment.get("ARGO_TOKEN", "").strip()
    wrong = next((place for place, one in enumerate(token, 1) if not " " <= one <= "~"), None)
    if wrong is not None:
        code = f"U+{ord(token[wrong - 1]):04X}"
        raise BadInput(
            f"ARGO_TOKEN cannot hold {code}, its character {wrong} of {len(token)}; allowed: printable ASCII, 'Bearer …'"
        )
    return token


def _switch(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environment.get(name, "")
    if text.lower() not in ("", "true", "false", "1", "0"):
        raise BadInput(f"{name} cannot be {text!r}; allowed: true, false")
    return default if text == "" else text.lower() in ("true", "1")


class LostSight(ExperimentError):
    """A server that has answered before stopped answering or no longer accepts the token. The
    workflow itself goes on.
    """


class ArgoServer:
    """One Argo Server. A request without an answer is repeated for `patience_s`.

    Before the first successful answer a refusal raises `BadInput`, because the address, the token
    or the name is wrong. Afterwards it raises `LostSight` (a token has expired), as does the end of
    the patience; for a workflow that was deleted it raises `ExperimentError`.
    """

    def __init__(
        self,
        where: Address,
        *,
        patience_s: float = 600.0,
        pause_s: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.where = where
        self.say = say
        self._patience_s = patience_s
        self._pause_s = PAUSE_S if pause_s is None else pause_s
        self._service = _connect(where)
        self._answered = False

    def create(self, manifest: Mapping[str, Any], *, patience_s: float = CREATE_PATIENCE_S) -> None:
        """Create the workflow. Its `metadata.name` is set, so a request whose answer was lost can
        be repeated.
        """
        from hera.exceptions import AlreadyExists
        from hera.workflows import models as m

        name = manifest["metadata"]["name"]
        number = secrets.token_hex(8)
        numbered = copy.deepcopy(dict(manifest))
        numbered["metadata"].setdefault("annotations", {})[SUBMISSION] = number
        workflow = m.Workflow.model_validate(numbered)

        attempts = 0

        def post() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self._service.create_workflow(m.WorkflowCreateRequest(workflow=workflow))
            except AlreadyExists:
                if (
                    attempts == 1
                    or self.read(name)["metadata"].get("annotations", {}).get(SUBMISSION) != number
                ):
                    raise BadInput(
                        f"a workflow {name!r} exists already; allowed: another --name, or --follow {name}"
                    ) from None

        self._patiently(post, patience_s)

    def read(self, name: str) -> dict[str, Any]:
        """Return the whole workflow as Argo writes it: metadata, spec and status."""
        return self._get(name, fields=None)

    def template(
        self, name: str, *, patience_s: float = CREATE_PATIENCE_S
    ) -> dict[str, Any] | None:
        """Return an installed workflow template, or None if there is none of this name, or none that
        this token may read. An answer says nothing about whether workflows are allowed here.
        """
        from hera.exceptions import Forbidden, NotFound

        def get() -> dict[str, Any] | None:
            try:
                found = self._service.get_workflow_template(name)
            except (NotFound, Forbidden):
                return None
            return _document(found)

        answered = self._answered
        found = self._patiently(get, patience_s)
        self._answered = answered
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return Argo's `status` with its nodes. It is empty until the controller has seen the
        workflow.
        """
        status: dict[str, Any] = self._get(name, fields=STATUS_FIELDS).get("status") or {}
        return status

    def stop(self, name: str, why: str) -> None:
        """Stop a workflow: nothing more of it starts, and its exit handler runs. why: Argo writes it
        to every node that it ends so.
        """
        from hera.workflows import models as m

        request = m.WorkflowStopRequest(message=why)
        self._patiently(lambda: self._service.stop_workflow(name, request), self._patience_s)

    def last_lines(self, name: str, pod: str, count: int) -> list[str]:
        """Return the last lines that the main container of a pod printed, or nothing if the server
        cannot tell. Asked once, without patience.

        Hera's own `workflow_logs` expects one JSON document; the server sends one per line.
        """
        from requests.exceptions import RequestException

        lines: list[str] = []
        with contextlib.suppress(RequestException, *UNREADABLE):
            answer = self._service._request(  # type: ignore[no-untyped-call]
                method="get",
                whole_s=CONNECT_S,
                url=f"{self.where.url}api/v1/workflows/{self.where.namespace}/{name}/log",
                params={
                    "podName": pod,
                    "logOptions.container": "main",
                    "logOptions.tailLines": str(count),
                },
                headers={"Authorization": self._service.token},
                verify=self.where.verify_certificate,
            )
            lines.extend(
                json.loads(line)["result"].get("content", "")
                for line in answer.text.splitlines()
                if line
            )
        return lines

    def _get(self, name: str, fields: str | None) -> dict[str, Any]:
        workflow = self._patiently(
            lambda: self._service.get_workflow(name, fields=fields), self._patience_s
        )
        return _document(workflow)

    def _patiently(self, request: Callable[[], Result], patience_s: float) -> Result:
        """Return the answer to a request. A server that is away or broken is asked again until
        `patience_s` have passed.
        """
        from hera.exceptions import HeraException
        from requests.exceptions import ConnectionError, RequestException

        started_s = time.monotonic()
        said = False
        while True:
            try:
                answer = request()
                self._answered = True
                return answer
            except (HeraException, RequestException, *UNREADABLE) as error:
                self._refuse(error)
                if time.monotonic() - started_s > patience_s:
                    lost = f"{self.where.url} has not answered for {patience_s:.0f} s: {self._said(error)}"
                    raise (LostSight if self._answered else ExperimentError)(lost) from None
                if not said:
                    if isinstance(error, ConnectionError):
                        reason = "cannot be reached"
                    else:
                        reason = self._said(error)
                    self.say(
                        f"Argo Server {self.where.url} {reason}; trying again for up to {patience_s:.0f} s"
                    )
                    said = True
            time.sleep(self._pause_s)

    def _refuse(self, error: Exception) -> None:
        """Raise if another attempt cannot help."""
        from hera.exceptions import BadRequest, Forbidden, NotFound, Unauthorized
        from requests.exceptions import SSLError

        from workflows.cluster.exchange import Elsewhere, TooLarge

        url = self.where.url
        final: dict[type[Exception], str] = {
            Unauthorized: f"{url} does not accept ARGO_TOKEN",
            Forbidden: f"{url} does not allow this in namespace {self.where.namespace!r}",
            NotFound: f"{url} has no such workflow",
            BadRequest: f"{url} refused the request",
            Elsewhere: f"{url} is not the Argo Server itself (ARGO_SERVER, ARGO_SECURE, ARGO_BASE_HREF)",
            TooLarge: f"{url} is no Argo Server, or the workflow is too large",
        }
        if isinstance(error, NotFound) and self._answered:
            raise ExperimentError(
                f"{url}: {self._said(error)}; it was deleted, or removed after its end"
            ) from None
        for kind, what in final.items():
            if isinstance(error, kind):
                raise (LostSight if self._answered else BadInput)(
                    f"{what}: {self._said(error)}"
                ) from None
        # Once the server has answered, TLS is right: a handshake that breaks off then is a restart.
        if isinstance(error, SSLError) and not self._answered:
            hint = "ARGO_SECURE=false for plain HTTP, ARGO_INSECURE_SKIP_VERIFY=true for a certificate of its own"
            raise BadInput(f"{url}: {self._said(error)}; {hint}") from None

    def _said(self, error: BaseException) -> str:
        """The message of an error, safe for a terminal, even if the server sends the token back."""
        text = str(error)
        for word in self.where.token.removeprefix("Bearer ").split():
            text = text.replace(word, "…")
        text = on_one_line(text)
        return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def _document(read: BaseModel) -> dict[str, Any]:
    """What Hera has read, as Argo writes it."""
    document: dict[str, Any] = json.loads(read.model_dump_json(exclude_none=True, by_alias=True))
    return document


def _connect(where: Address) -> WorkflowsService:
    from hera.workflows import WorkflowsService

    from workflows.cluster.exchange import Session

    service = WorkflowsService(
        host=where.url,
        token=where.token or None,
        namespace=where.namespace,
        verify_ssl=where.verify_certificate,
        session=Session(CONNECT_S, ANSWER_S),
    )
    if not where.verify_certificate:
        from urllib3.exceptions import InsecureRequestWarning

        # The person has asked for it by ARGO_INSECURE_SKIP_VERIFY; a warning at every request of a
        # long following would hide everything else.
        warnings.simplefilter("ignore", InsecureRequestWarning)
    return service
