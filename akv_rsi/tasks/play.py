"""One episode: a task under a policy, as a coroutine that asks for decisions and LLM calls.

`play` is the trial boundary: what a policy or an environment does wrong becomes the episode's
outcome here. Engine failures happen outside, where the calls are made, and stop the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, get_args

from akv_rsi.engine.request import Request
from akv_rsi.errors import AkvError, ContextLimit, OpError, PolicyError, TaskError
from akv_rsi.policies.editor import Edit
from akv_rsi.tasks.conversation import Conversation
from akv_rsi.tasks.decide import Choice, ask
from akv_rsi.tasks.environment import Environment, Observation
from akv_rsi.tasks.episode import Outcome
from akv_rsi.types import SegmentKind

_KINDS = frozenset(get_args(SegmentKind))


class Played(NamedTuple):
    """How an episode ended."""

    success: bool
    outcome: Outcome
    detail: str


# Sent a Decision (or why there is none) for each Choice, and a Completion (or ContextLimit) for
# each Request.
Play = Generator[Choice | Request, Any, Played]


def play(conversation: Conversation, make: Callable[[], Environment], max_turns: int) -> Play:
    """Plays the task that ``make`` makes, to its end.

    ``max_turns`` is only a safety cap: environments end their episodes themselves. An episode that
    reaches it is verified as it stands. A conversation that outgrows the model is its policy's
    fault.
    """
    try:
        environment = ask(make)
        observation = _checked(ask(environment.reset))
        conversation.open(observation)
        while not observation.done and conversation.transcript.turn < max_turns:
            decision = _sound((yield Choice(conversation.transcript.snapshot(), environment)))
            if isinstance(decision, Edit):
                yield from _edit(conversation, decision)
                decision = ()
            completion = _sound((yield conversation.request(decision)))
            action = conversation.answer(completion)
            observation = _checked(ask(environment.step, action))
            conversation.observe(observation)
        return Played(bool(ask(environment.verify)), "done", "")
    except (PolicyError, OpError, ContextLimit) as error:
        return Played(False, "policy_error", f"{type(error).__name__}: {error}")
    except TaskError as error:
        return Played(False, "infrastructure", str(error))


def _edit(conversation: Conversation, edit: Edit) -> Generator[Request, Any, None]:
    if edit.summarise:
        asked = conversation.summary_request(edit)
        conversation.edit(edit, asked, _sound((yield asked)))
    else:
        conversation.edit(edit)


def _sound(answer: Any) -> Any:
    """``answer``, unless it is an error: that is raised where it belongs, in the episode."""
    if isinstance(answer, AkvError):
        raise answer
    return answer


def _checked(observation: Observation) -> Observation:
    """``observation``, which a suite's author may have made wrongly."""
    if not isinstance(observation, Observation):
        raise TaskError(f"the environment answered {type(observation).__name__}, no Observation")
    kinds = {observation.action, *(message.kind for message in observation.messages)}
    if unknown := kinds - _KINDS:
        raise TaskError(f"the environment sent unknown kinds of message: {sorted(unknown)}")
    return observation
