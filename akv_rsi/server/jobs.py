"""From a request on the wire to a request for the engine, with all that its answer needs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from akv_rsi.engine.request import Completion
from akv_rsi.engine.request import Request as EngineRequest
from akv_rsi.errors import ContextLimit
from akv_rsi.server.answers import Answers
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.ops import history_of, plain_history
from akv_rsi.server.planner import Plan, Planner
from akv_rsi.server.prompt import Prompt, Writer
from akv_rsi.server.refusal import Refusal
from akv_rsi.server.segments import segments
from akv_rsi.server.sessions import session_id
from akv_rsi.server.tenants import Tenants
from akv_rsi.server.wire import ChatRequest, CompletionRequest, refuse_unsupported
from akv_rsi.tasks.template import ChatTemplate
from akv_rsi.visibility import Visibility

COLDEST = 1e-3


@dataclass(frozen=True, slots=True)
class Job:
    """One call, ready for the engine; ``state`` is what is visible at the end of its prompt.

    ``prompt`` and ``session`` are those of a conversation.
    """

    request: EngineRequest
    state: Visibility
    stops: tuple[str, ...]
    prompt: Prompt | None = None
    session: str | None = None
    plan: Plan | None = None

    def usage(self, completion: Completion) -> dict[str, Any]:
        """OpenAI's usage, with the details of AKV-SGLang and ours. All counts are tokens.

        ``drop_skipped_tokens`` of the prompt are not read any more; ``repos_tokens`` that are stand
        elsewhere than they were written.
        """
        state, prompt = self.state, len(self.request.tokens)
        moved = [r for r in state.runs if r.visible and r.position != r.start]
        output = len(completion.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {
                "cached_tokens": completion.cached,
                "drop_skipped_tokens": prompt - state.attended,
                "repos_tokens": sum(run.end - run.start for run in moved),
                "refreshed_tokens": completion.refreshed,
                "restored_tokens": completion.restored,
                "recovered_tokens": completion.recovered,
                "matched_exact": completion.matched_exact,
                "matched_retrigger": completion.matched_retrigger,
            },
        }


class Jobs:
    """Makes jobs for one model, for one thread at a time (`Turns`): the tokenizer is not shared.

    ``positions`` and ``vocabulary`` are the model's; answers end with a token of ``ends``.
    """

    def __init__(
        self,
        template: ChatTemplate,
        positions: int,
        vocabulary: int,
        config: ServerConfig,
        tenants: Tenants,
        planner: Planner | None = None,
    ) -> None:
        self.planner = planner
        self.ends = template.stops()
        self.answers = Answers(config.kept_answers, self.ends)
        self._template = template
        self._positions = positions
        self._vocabulary = vocabulary
        self._config = config
        self._tenants = tenants
        self._writer = Writer(template, config.ephemeral_tags)

    def chat(self, asked: ChatRequest, tenant: str) -> Job:
        """The job of a chat; `AkvError` when the request is at fault."""
        refuse_unsupported(asked)
        self._check_size(asked)
        prompt = self._writer.write(asked.messages, asked.tools, tenant)
        prompt = self.answers.splice(tenant, prompt)
        name = session_id(tenant, prompt)
        plan: Plan | None = None
        pinned = prompt.pinned
        if self.planner is not None and not asked.has_ops:
            shown = segments(prompt)
            plan = self.planner.plan(name, shown)
            # A short first message is all that a policy knows to be pinned, not four tokens.
            pinned = tuple((s.start, s.end) for s in shown if s.pinned)
        tokens = prompt.rendered.tokens
        if plan is not None:
            history, decided = plan.history, plan.decided.state
            state = decided.append(len(tokens) - decided.length)
        else:
            history = history_of(asked, prompt)
            state = Visibility.replay(len(tokens), history)
        limit = asked.max_completion_tokens or asked.max_tokens
        request = EngineRequest(tokens, history, pinned=pinned, stop=self.ends)
        job = Job(request, state, asked.stops, prompt, name, plan)
        return self._bounded(job, asked, limit, tenant)

    def text(self, asked: CompletionRequest, tenant: str) -> Job:
        """The job of a plain completion; `AkvError` when the request is at fault."""
        refuse_unsupported(asked)
        self._check_size(asked)
        tokens = self._tokens(asked)
        history = plain_history(asked.cache_ops or (), len(tokens))
        pinned = ((0, min(4, len(tokens))),)
        request = EngineRequest(tokens, history, pinned=pinned, stop=self.ends)
        state = Visibility.replay(len(tokens), history)
        return self._bounded(Job(request, state, asked.stops), asked, asked.max_tokens, tenant)

    def _tokens(self, asked: CompletionRequest) -> tuple[int, ...]:
        given = asked.prompt
        if isinstance(given, list) and given and not isinstance(given[0], int):
            if len(given) != 1:
                raise Refusal(400, "one prompt a request: send the others on their own", "prompt")
            given = given[0]
        if isinstance(given, str):
            return self._template.encode(given)
        tokens = tuple(token for token in given if isinstance(token, int))
        if any(not 0 <= token < self._vocabulary for token in tokens):
            raise Refusal(400, f"token ids must lie in [0, {self._vocabulary})", "prompt")
        return tokens

    def _check_size(self, asked: ChatRequest | CompletionRequest) -> None:
        ops = len(asked.cache_ops or ())
        if isinstance(asked, ChatRequest):
            ops += len(asked.drop_message or ()) + len(asked.reposition or ())
            count, most = len(asked.messages), self._config.max_messages
            if count > most:
                raise Refusal(
                    400,
                    f"{count} messages are more than the {most} this server takes: send fewer, or "
                    "raise its --max-messages",
                    "too_many_messages",
                )
            if len(asked.rules) > 16:
                raise Refusal(400, "more than 16 drop rules in one request")
        if ops > self._config.max_ops:
            raise Refusal(400, f"{ops} ops are more than the {self._config.max_ops} it takes")

    def _bounded(
        self, job: Job, asked: ChatRequest | CompletionRequest, limit: int | None, tenant: str
    ) -> Job:
        """The job with its sampling, and an answer no longer than there are positions."""
        prompt = len(job.request.tokens)
        if not prompt:
            raise Refusal(400, "the prompt is empty", "prompt")
        left = self._positions - job.state.next_position
        if left < 1:
            raise ContextLimit(
                f"the prompt takes all {self._positions} positions of the model: "
                "drop messages and reposition, or send fewer"
            )
        answer = min(limit or self._config.answer_tokens, left)
        if prompt + answer > (most := self._tenants.limits(tenant).max_context):
            raise ContextLimit(f"prompt and answer exceed the {most} tokens you may use at once")
        temperature, seed = _temperature(asked.temperature), asked.seed
        if seed is None:
            seed = secrets.randbits(32) if temperature else 0
        request = replace(
            job.request,
            max_new_tokens=answer,
            temperature=temperature,
            seed=seed,
            logprobs=asked.likeliest,
            tenant=tenant,
            salt=asked.cache_salt,
        )
        return replace(job, request=request)


def _temperature(asked: float | None) -> float:
    """OpenAI's default is 1; what would overflow the logits is greedy."""
    if asked is None:
        return 1.0
    return asked if asked >= COLDEST else 0.0
