"""The chat format of a pretrained model: its template, where each message stands for itself.

A `ChatFormat` encodes messages one by one. That is exact for templates whose messages do not depend
on their neighbours, which is proved on a probe; another template is refused here, and can still be
rendered whole with `ChatTemplate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.locate import TemplateRefused
from akv_rsi.tasks.template import ChatTemplate
from akv_rsi.types import SegmentKind

ROLES: Mapping[SegmentKind, str] = MappingProxyType(
    {
        "system": "system",
        "tools": "system",
        "user": "user",
        "tool_result": "tool",
        "reasoning": "assistant",
        "assistant": "assistant",
        "tool_call": "assistant",
    }
)
_SUMMARY = "Sum up everything above that is still needed to finish the task. Keep exact names."
_PROBE: tuple[SegmentKind, ...] = ("user", "assistant", "tool_result", "tool_call", "user")


class TemplateFormat:
    """A `ChatFormat` from a chat template; `TemplateRefused` when messages depend on neighbours.

    A tool result is a user's message where the template knows no tools.
    """

    max_new_tokens = 128
    max_summary_tokens = 256

    def __init__(self, template: ChatTemplate, reliable_span: int) -> None:
        self.reliable_span = reliable_span
        self._template = template
        self._roles = dict(ROLES)
        if not self._stands("tool"):
            self._roles["tool_result"] = "user"
        self._check()
        self.stop = template.stops()

    @classmethod
    def load(cls, folder: Path, reliable_span: int) -> TemplateFormat:
        """The format of a model folder; `ModelLoadError` when it has no usable tokenizer."""
        return cls(ChatTemplate.load(folder), reliable_span)

    def encode(self, message: Message) -> list[int]:
        """The whole message, from its role header to its end marker and separator."""
        return self._tokens(self._written(self._roles[message.kind], message.text))

    def prompt(self) -> list[int]:
        """The header that starts the agent's own message."""
        written = self._template.write(self._frame())
        return self._tokens(written.text[written.starts[-1] :])

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end marker."""
        return self._template.decode(tokens)

    def summary_request(self) -> Message:
        """Asks the agent to restate what it must not forget."""
        return Message("user", _SUMMARY)

    def _frame(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": "-"}, {"role": "user", "content": "-"}]

    def _written(self, role: str, text: str) -> str:
        """A message as the template writes it: a system prompt first, others behind a frame."""
        message = {"role": role, "content": text}
        if role == "system":
            return self._template.write([message, self._frame()[1]]).message(0)
        return self._template.write([*self._frame(), message]).message(2)

    def _tokens(self, text: str) -> list[int]:
        encoding = self._template.tokenizer(text, add_special_tokens=False)
        return list(encoding["input_ids"])

    def _stands(self, role: str) -> bool:
        try:
            return "some words" in self._written(role, "some words")
        except TemplateRefused:
            return False

    def _check(self) -> None:
        """Messages apart must be the tokens of the whole."""
        said = [Message("system", "Be exact."), *(Message(kind, f"{kind} 7.") for kind in _PROBE)]
        whole = self._template.render(
            [{"role": self._roles[m.kind], "content": m.text} for m in said]
        )
        apart = [token for message in said for token in self.encode(message)]
        if (*apart, *self.prompt()) != whole.tokens:
            raise TemplateRefused(
                "the messages of this chat template depend on their neighbours, so they cannot be "
                "encoded one by one"
            )
