"""Random and mutated calls of a learner's service, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc
from hypothesis import strategies as st

from agents.transport import calls

Hostile = tuple[str, list[bytes], list[tuple[str, str]]]
"""The method, its messages and its metadata without the token."""
ANSWERS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""That are the service's intention; an exception in it would be UNKNOWN."""
CHANGES: list[Callable[[bytes, int, bytes], bytes]] = [
    lambda message, at, given: message[:at] + given + message[at + len(given) :],
    lambda message, at, given: message[:at] + given + message[at:],
    lambda message, at, given: message[:at] + message[at + len(given) :],
    lambda message, at, given: message[:at] + message[at // 2 : at] + message[at:],
]


@st.composite
def mutated(draw: st.DrawFn, message: bytes) -> bytes:
    """A sound message with some of its bytes replaced, left out, doubled or added to."""
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(message)))
        message = draw(st.sampled_from(CHANGES))(message, at, draw(st.binary(max_size=9)))
    return message


def incarnations(stranger: int) -> st.SearchStrategy[str]:
    """What the metadata may say instead of it."""
    return st.one_of(
        st.just(str(stranger)),
        st.integers().map(str),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60),
    )


@st.composite
def hostile_calls(draw: st.DrawFn, sound: Mapping[str, bytes], stranger: int) -> Hostile:
    """sound: a message for each method."""
    name = draw(st.sampled_from(sorted(sound)))
    message = st.one_of(mutated(sound[name]), st.binary(max_size=3000))
    named = incarnations(stranger)
    metadata = [(calls.INCARNATION, draw(named)) for _ in range(draw(st.integers(0, 2)))]
    return name, draw(st.lists(message, max_size=3)), metadata
