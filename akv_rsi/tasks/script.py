"""Fixed action sequences: a task walked through by its own expert, without a model.

They tell how long a task is, whatever the agent does, and let policies be compared on the same
actions, so that one that loops cannot flatter itself.
"""

from __future__ import annotations

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import TaskError
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.conversation import Conversation
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import ask, oracle
from akv_rsi.tasks.environment import Environment, Expert, Hindsight, Message
from akv_rsi.tasks.play import Played, play
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Trajectory


def demonstrate(
    name: str, environment: Environment, chat: ChatFormat, prices: PriceModel, max_turns: int
) -> Trajectory | None:
    """The task as its expert solves it, with the oracle's ops; None where there is no expert.

    Without hindsight the trajectory has no ops. An expert that fails is a `TaskError`.
    """
    if not isinstance(environment, Expert):
        return None
    conversation = Conversation(chat, Transcript(name, prices, chat.reliable_span))
    episode = play(conversation, lambda: environment, max_turns)
    try:
        asked = next(episode)
        while True:
            if isinstance(asked, Request):
                asked = episode.send(_said(chat, ask(environment.expert)))
            elif isinstance(environment, Hindsight):
                asked = episode.send(oracle(*asked))
            else:
                asked = episode.send(())
    except StopIteration as stop:
        played: Played = stop.value
    if not played.success:
        raise TaskError(f"the expert of {name} fails: {played.detail or 'not verified'}")
    return conversation.transcript.trajectory("expert")


def _said(chat: ChatFormat, action: str) -> Completion:
    """``action`` as if the model had sampled it, up to its stop token."""
    tokens = chat.encode(Message("tool_call", action))[len(chat.prompt()) :]
    end = next((i + 1 for i, token in enumerate(tokens) if token in chat.stop), len(tokens))
    return Completion(tuple(tokens[:end]), "stop", 0, 0, 0, 0, 0.0, 0.0)
