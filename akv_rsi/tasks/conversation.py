"""A conversation between an environment and a model: messages in, requests out, answers in.

One call goes ``request`` (the policy's ops, the prompt) -> ``answer`` (the completion, an action's
text) -> ``observe`` (what the environment said). A text-editing policy's call begins with ``edit``
instead of ops, after the answer to ``summary_request`` when it wants a summary.
"""

from __future__ import annotations

from akv_rsi.engine.request import Completion, Request
from akv_rsi.policies.editor import Edit
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message, Observation
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Op, Range


class Conversation:
    """The tokens of one conversation, in step with its `Transcript`.

    The prompt of a call is the text so far and the assistant header; the answer's segment reaches
    from that header to the end marker. Marker tokens the model did not sample itself (a separator,
    or the whole marker of an answer cut at its limit) are put behind it, after the boundary.
    """

    def __init__(self, chat: ChatFormat, transcript: Transcript) -> None:
        self.transcript = transcript
        self._chat = chat
        self._tokens: list[int] = []
        self._header = chat.prompt()
        self._tail = chat.encode(Message("assistant", ""))[len(self._header) :]
        self._action = ""

    def open(self, observation: Observation) -> None:
        """The environment's opening messages."""
        encoded = [self._chat.encode(message) for message in observation.messages]
        self.transcript.open(observation.messages, [len(tokens) for tokens in encoded])
        for tokens in encoded:
            self._tokens.extend(tokens)

    def request(self, ops: tuple[Op, ...] = ()) -> Request:
        """The next call, after ``ops``; `OpError` when they break the contract."""
        self.transcript.apply(ops)
        return Request(
            tokens=(*self._tokens, *self._header),
            history=self.transcript.history,
            max_new_tokens=self._chat.max_new_tokens,
            stop=self._chat.stop,
            pinned=self.transcript.pinned,
            attention=self._segments() if self.transcript.measures else (),
        )

    def answer(self, completion: Completion) -> str:
        """Takes the model's answer to the last request; returns its text."""
        output = completion.tokens
        if self.transcript.measures:
            self.transcript.attended(completion.attention)
        self.transcript.record(len(self._tokens) + len(self._header), len(output))
        self._tokens.extend((*self._header, *output, *self._unsampled(completion)))
        self._action = self._chat.decode(output)
        return self._action

    def observe(self, observation: Observation) -> None:
        """Adds the answer under the kind the environment gave it, and then its messages."""
        said = Message(observation.action, self._action)
        self.transcript.add(said, len(self._tokens) - self.transcript.length)
        for message in observation.messages:
            tokens = self._chat.encode(message)
            self.transcript.add(message, len(tokens))
            self._tokens.extend(tokens)

    def summary_request(self, edit: Edit) -> Request:
        """The auxiliary call: the text up to the last summarised segment, and the request."""
        self.transcript.check_edit(edit)
        kept = self.transcript.segments[max(edit.summarise)].end
        request = self._chat.encode(self._chat.summary_request())
        return Request(
            tokens=(*self._tokens[:kept], *request, *self._header),
            history=self.transcript.told(kept),
            max_new_tokens=self._chat.max_summary_tokens,
            stop=self._chat.stop,
        )

    def edit(
        self, edit: Edit, asked: Request | None = None, summary: Completion | None = None
    ) -> None:
        """Rewrites the text; ``summary`` is the answer to the request ``asked`` for one."""
        said, tokens = None, []
        if asked is not None and summary is not None:
            kept = self.transcript.segments[max(edit.summarise)].end
            self.transcript.record_auxiliary(len(asked.tokens), kept, len(summary.tokens))
            said = Message("assistant", self._chat.decode(summary.tokens))
            tokens = [*self._header, *summary.tokens, *self._unsampled(summary)]
        origins = self.transcript.edit(edit, said, len(tokens))
        pieces = (tokens if origin is None else self._tokens[slice(*origin)] for origin in origins)
        old, self._tokens = self._tokens, [token for piece in pieces for token in piece]
        self.transcript.rewind(_common(old, self._tokens))

    def _segments(self) -> tuple[Range, ...]:
        return tuple((segment.start, segment.end) for segment in self.transcript.segments)

    def _unsampled(self, completion: Completion) -> list[int]:
        """The end marker's tokens that the model left out."""
        ended = bool(completion.tokens) and completion.tokens[-1] in self._chat.stop
        return self._tail[1:] if ended else self._tail


def _common(old: list[int], new: list[int]) -> int:
    """How many leading tokens are equal: what a prefix cache finds again."""
    pairs = zip(old, new, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
