"""What a user reads when a store refuses: the message out of a Java stack trace."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.harness import StoreFailure

_CAUSE = re.compile(r"^(?:: |Caused by: )(?P<name>[\w.$]+)(?:: (?P<text>.*))?$")
_FRAME = re.compile(r"^\s+(?:at |\.\.\. \d+ more)")
_FLOE = re.compile(r"\[FLOE\.(?P<kind>\w+)\] (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Refusal:
    """The message that explains a failure; `kind` is None when the error is not Floe's own."""

    kind: str | None
    text: str


def refusal_of(failure: StoreFailure) -> Refusal:
    """Floe's own error in the chain of causes, else the innermost one."""
    messages = _messages(str(failure))
    for message in messages:
        found = _FLOE.match(message)
        if found is not None:
            return Refusal(found["kind"], found["text"])
    return Refusal(None, messages[-1])


def refused(action: Callable[[], object]) -> Refusal:
    """Runs something that has to fail in the JVM; what it says."""
    with pytest.raises(StoreFailure) as caught:
        action()
    return refusal_of(caught.value)


def _messages(trace: str) -> list[str]:
    """The message of each exception in the chain, outermost first; one may have many lines."""
    messages: list[list[str]] = []
    in_message = False
    for line in trace.splitlines():
        cause = _CAUSE.match(line)
        if cause is not None:
            messages.append([cause["text"] or cause["name"]])
            in_message = True
        elif _FRAME.match(line):
            in_message = False
        elif in_message:
            messages[-1].append(line)
    assert messages, trace
    return ["\n".join(lines) for lines in messages]
