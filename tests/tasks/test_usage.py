"""The cost model against a real engine: equal for an isolated task in an ample pool."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from toy import WORDS, toy_format

from akv_rsi.config import EngineConfig
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.agent import vocabulary
from akv_rsi.tasks.bench import Agent, Bench
from akv_rsi.tasks.cohort import run_cohort
from akv_rsi.tasks.cost import PriceModel, usages
from akv_rsi.tasks.environment import Environment, Message, Observation
from akv_rsi.tasks.episode import Episode, TaskRef

# An engine keeps what it sampled.
ENGINE = PriceModel("engine", read=0.1, write=1.0, output=5.0, caches_output=True)
TURNS = 10


class Talk:
    """Ten tool results of growing length, whatever the agent says: the model is a random one."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._turn = 0

    def reset(self) -> Observation:
        return Observation((Message("system", "you act"), Message("user", f"look v{self._seed}")))

    def step(self, action: str) -> Observation:
        self._turn += 1
        text = f"red is v{self._turn} . " + "noise " * self._turn
        kind = "assistant" if self._turn % 2 else "tool_call"
        early = self._turn < TURNS / 2
        message = Message("tool_result", text, tool="look", call="red", ephemeral=early)
        return Observation((message,), self._turn == TURNS, kind)  # type: ignore[arg-type]

    def verify(self) -> bool:
        return True


@dataclass(frozen=True)
class Talks:
    name: str = "talk"

    def environment(self, seed: int) -> Environment:
        return Talk(seed)


@pytest.fixture(scope="module")
def bench() -> Bench:
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    from akv_rsi.engine.engine import Engine
    from akv_rsi.engine.model import Model

    torch.manual_seed(0)
    chat = toy_format()
    shape = LlamaConfig(
        vocab_size=len(vocabulary(WORDS)),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        initializer_range=0.15,
    )
    config = EngineConfig(pages=1024, threads=1, self_test=False)
    model = Model.from_pretrained(LlamaForCausalLM(shape).eval(), config)
    return Bench(Agent(Engine(model, config), chat), lambda name: Talks(), ENGINE)


def episode(bench: Bench, spec: PolicySpec) -> Episode:
    ((result,),) = run_cohort(bench, [spec], [TaskRef("talk", 1, "train")], keep=True).episodes
    assert result.outcome == "done", result.detail
    return result


PROGRAMS = [
    library.spec("full"),
    library.spec("rolling_drop", keep=1),
    library.spec("rolling_drop_repos", keep=2),
    library.spec("rolling_drop_refresh", keep=1),
    library.spec("supersede_aware"),
]


@pytest.mark.parametrize("spec", PROGRAMS, ids=lambda spec: spec.name)
def test_counted_and_charged_usage_are_equal(bench: Bench, spec: PolicySpec) -> None:
    result = episode(bench, spec)
    assert result.trajectory is not None
    charged = list(usages(result.trajectory, ENGINE))
    assert len(charged) == len(result.measured) == TURNS
    for usage, counted in zip(charged, result.measured, strict=True):
        assert usage.uncached == counted.prefilled
        assert usage.refreshed == counted.refreshed
        assert usage.output == counted.output
        assert usage.cached == counted.attended - counted.prefilled
        assert counted.cached == counted.prompt - (counted.prefilled - counted.refreshed)
        assert counted.ttft > 0


EDITORS = [
    library.spec("truncate", limit=0.5, target=0.3),
    library.spec("trim", keep=2, batch=2),
    library.spec("summarise", limit=0.5, keep=2),
    library.spec("decision_tree", limit=0.5, recent=2),
]


@pytest.mark.parametrize("spec", EDITORS, ids=lambda spec: spec.name)
def test_text_edits_are_equal_too(bench: Bench, spec: PolicySpec) -> None:
    """An engine finds the common prefix, token by token, as the cost model does.

    It also remembers texts older than the last one, with which an edited text may happen to agree
    for a token or two more.
    """
    result = episode(bench, spec)
    assert result.trajectory is not None
    calls = result.trajectory.calls
    assert any(call.auxiliary for call in calls) == (spec.name in ("summarise", "decision_tree"))
    assert any(call.ops for call in calls) == (spec.name == "decision_tree")
    edits, computed = 0, 0
    for call, usage, counted in zip(
        calls, usages(result.trajectory, ENGINE), result.measured, strict=True
    ):
        edited = not call.auxiliary and call.reused < computed
        edits += edited
        assert usage.output == counted.output
        assert 0 <= usage.uncached - counted.prefilled <= 2 * edited
        assert usage.cached + usage.uncached == counted.attended
        computed = computed if call.auxiliary else call.prompt + call.output
    assert edits > 1


def test_refreshes_and_drops_happened(bench: Bench) -> None:
    """Else the equality above proves nothing."""
    dropped, full = episode(bench, PROGRAMS[1]), episode(bench, PROGRAMS[0])
    refreshed = episode(bench, PROGRAMS[3])
    assert dropped.measured[-1].attended < full.measured[-1].attended
    assert refreshed.usage.refreshed > 0


def test_what_cohorts_share_is_no_ones_cost(bench: Bench) -> None:
    """Together, each costs what it costs alone; the engine computes less."""
    tasks = [TaskRef("talk", seed, "train") for seed in range(3)]
    alone = [run_cohort(bench, [spec], tasks) for spec in PROGRAMS]
    together = run_cohort(bench, PROGRAMS, tasks)
    assert [r.episodes[0] for r in alone] == together.episodes
    assert together.totals.computed < sum(r.totals.computed for r in alone)
    assert together.totals.cached_share > max(r.totals.cached_share for r in alone)
    assert together.totals.calls == sum(r.totals.calls for r in alone)
