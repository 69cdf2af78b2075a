"""The readers, one format a file, in the order in which they are asked."""

from __future__ import annotations

from akv_rsi.tasks.traces.readers.agentbench import AgentBench
from akv_rsi.tasks.traces.readers.aider import Aider
from akv_rsi.tasks.traces.readers.anthropic_messages import AnthropicMessages
from akv_rsi.tasks.traces.readers.base import Reader
from akv_rsi.tasks.traces.readers.claude_code import ClaudeCode
from akv_rsi.tasks.traces.readers.codex import Codex
from akv_rsi.tasks.traces.readers.gemini_cli import GeminiCli
from akv_rsi.tasks.traces.readers.kimi_cli import KimiCli
from akv_rsi.tasks.traces.readers.mini_sweagent import MiniSweAgent
from akv_rsi.tasks.traces.readers.openai_chat import OpenAIChat
from akv_rsi.tasks.traces.readers.openai_responses import OpenAIResponses
from akv_rsi.tasks.traces.readers.openhands import OpenHands
from akv_rsi.tasks.traces.readers.otel import OpenTelemetry
from akv_rsi.tasks.traces.readers.sweagent import SweAgent
from akv_rsi.tasks.traces.readers.taubench import TauBench

# The plain message formats come last: others contain them.
READERS: tuple[Reader, ...] = (
    OpenTelemetry(),
    Codex(),
    ClaudeCode(),
    KimiCli(),
    GeminiCli(),
    MiniSweAgent(),
    SweAgent(),
    OpenAIResponses(),
    AgentBench(),
    TauBench(),
    OpenHands(),
    Aider(),
    AnthropicMessages(),
    OpenAIChat(),
)
__all__ = ["READERS", "Reader"]
