"""What the engine must refuse: ops the contract forbids, and models it cannot run exactly."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama import modeling_llama

from akv_rsi.config import EngineConfig
from akv_rsi.engine.model import Model
from akv_rsi.engine.request import Request
from akv_rsi.errors import (
    ContextLimit,
    EngineError,
    GuardError,
    NumericalError,
    OpError,
    UnsupportedModel,
)

from .book import Op
from .convert import history_of
from .harness import Call, engine_for, forced, rows_of
from .histories import TOLERANCE, distance, telling_case
from .models import SHAPE, VOCAB, tiny

TEXT = tuple(range(30))


def request(*ops: Op, **options: Any) -> Request:
    return Request(TEXT, history_of(ops), **{"max_new_tokens": 2, **options})


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([("drop", 20, ((3, 6),)), ("drop", 25, ((5, 8),))], "already dropped"),
        ([("restore", 20, ((3, 6),))], "already visible"),
        ([("drop", 20, ((3, 6),)), ("repos", 20), ("restore", 25, ((3, 6),))], "lost their place"),
        ([("drop", 20, ((3, 6),)), ("restore", 20, ((5, 7),))], "dropped and restored at once"),
        ([("drop", 20, ((3, 6),)), ("refresh", 25, ((5, 7),))], "not visible"),
        ([("repos", 31)], "past the end"),
    ],
)
def test_a_forbidden_op_is_named_and_others_go_on(ops: list[Op], words: str) -> None:
    case, engine = telling_case("llama", 0), engine_for("llama")
    with pytest.raises(OpError, match=rf"request \d+: .*{words}"):
        engine.submit(request(*ops))
    call = Call(case.tokens, case.history, 44, 4)
    forced(engine, [call])
    assert distance(rows_of(call), call.expected("llama")) <= TOLERANCE


def test_guards_hold_on_a_cold_and_on_a_cached_path() -> None:
    """PITFALLS 19: sinks stay, and a path that is cached the second time is no way around that."""
    engine, drop = engine_for("llama"), ("drop", 20, ((3, 6),))
    for _ in range(2):
        with pytest.raises(GuardError, match=r"request \d+: .*pinned tokens \[0, 4\)"):
            engine.submit(request(drop, pinned=((0, 4),)))
        engine.generate([request(drop)])
    with pytest.raises(GuardError, match="nothing visible"):
        engine.submit(request(("drop", 20, ((0, 20),))))
    engine.check()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Request(()), EngineError),
        (Request((1, VOCAB)), EngineError),
        (Request((1, -1)), EngineError),
        (Request((1,), max_new_tokens=0), EngineError),
        (Request(TEXT * 20), ContextLimit),
    ],
)
def test_a_request_that_cannot_run_is_refused(bad: Request, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"request \d+: "):
        engine_for("llama").submit(bad)


def test_dropping_makes_no_room_beyond_the_models_positions_but_repositioning_does() -> None:
    """512 positions: without a Repos the gap still counts."""
    tokens = tuple(i % VOCAB for i in range(520))
    drop: Op = ("drop", 400, ((100, 300),))
    engine = engine_for("llama", pages=300)
    with pytest.raises(ContextLimit):
        engine.submit(Request(tokens, history_of([drop]), max_new_tokens=2))
    call = Call(tokens, [drop, ("repos", 400)], 518, 2)
    forced(engine, [call])
    assert distance(rows_of(call), call.expected("llama")) <= TOLERANCE


def test_logits_that_are_no_numbers_fail_one_request_and_poison_no_other() -> None:
    poisoned, engine = 96, engine_for("llama", pages=24)
    case = telling_case("llama", 1)
    tokens = tuple(token % poisoned for token in case.tokens)
    engine._model.hf.model.embed_tokens.weight.data[poisoned] = float("nan")
    for _ in range(3):
        with pytest.raises(NumericalError, match=r"request \d+"):
            engine.generate([Request((5, poisoned, 6)), Request(tokens[:20], max_new_tokens=3)])
        engine.check()
        call = Call(tokens, case.history, 44, 4)
        forced(engine, [call])
        assert distance(rows_of(call), call.expected("llama")) <= TOLERANCE


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_cancelling_at_any_time_leaves_an_exact_cache(steps: int) -> None:
    """PITFALLS: cancel in every life-cycle state, then check, then use what it left."""
    case, engine = telling_case("gemma3", 2), engine_for("gemma3", chunk_tokens=13, max_batch=2)
    numbers = [engine.submit(Request(case.tokens[:46], history_of(case.history)))]
    numbers.append(engine.submit(Request(case.tokens[:40], max_new_tokens=4)))
    numbers.append(engine.submit(Request(case.tokens[:30], max_new_tokens=1)))
    finished = [number for _ in range(steps) for number, _ in engine.step()]
    for number in numbers:
        assert engine.cancel(number) is (number not in finished)
        engine.check()
    assert not engine.cancel(numbers[0])
    calls = [Call(case.tokens, case.history, 44, 4), Call(case.tokens, (), 40, 8)]
    forced(engine, calls)
    for call in calls:
        assert distance(rows_of(call), call.expected("gemma3")) <= TOLERANCE


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "stablelm"}, ""),
        ({"model_type": "phi"}, ""),
        ({"model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_layer": 2}, "rotary"),
        ({"model_type": "bloom", "n_head": 4, "n_layer": 2}, "not exchangeable"),
        (
            {
                "model_type": "llama",
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
            },
            "dynamic",
        ),
        (
            {
                "model_type": "phi3",
                "hidden_size": 64,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "factor": 2.0,
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                    "original_max_position_embeddings": 256,
                },
            },
            "longrope",
        ),
        (
            {
                "model_type": "lfm2",
                "layer_types": ["full_attention", "full_attention", "conv"],
            },
            "layers",
        ),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"]}, "layers"),
        (
            {
                "model_type": "gemma3_text",
                "use_bidirectional_attention": True,
                "sliding_window": 9,
                "query_pre_attn_scalar": 16,
            },
            "",
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_cannot_be_exact_is_refused_with_its_reason(
    config: dict[str, Any], reason: str
) -> None:
    kind = config["model_type"]
    rest = {key: value for key, value in config.items() if key != "model_type"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SHAPE, **rest}))
    with pytest.raises(UnsupportedModel, match=f"ForCausalLM|LMHead.*{reason}"):
        Model.from_pretrained(model.float(), EngineConfig(pages=16))


def test_attention_that_does_more_than_its_arguments_say_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = modeling_llama.eager_attention_forward

    def flat(module: Any, query: Tensor, *rest: Any, **options: Any) -> Any:
        return right(module, query * 0.9, *rest, **options)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", flat)
    with pytest.raises(UnsupportedModel, match="logits differ from stock eager attention"):
        Model.from_pretrained(deepcopy(tiny("llama")), EngineConfig(pages=16))
