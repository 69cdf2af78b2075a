from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from akv_rsi.kernels.attend.plan import KeyList, Run, Sizes, Task, make_plan
from akv_rsi.kernels.attend.triton import Score, Store, attend
from akv_rsi.kernels.checks import Ints
from akv_rsi.kernels.errors import KernelArgumentError
from akv_rsi.kernels.mass.reference import mass_of_keys
from akv_rsi.kernels.mass.triton import key_mass, page_mass
from akv_rsi.kernels.rotation import Turns

from .problems import DEVICE, Problem, Shape, difference, make_problem, plain

# Between them: head sizes 32 to 256, groups 1 to 8, both pairings, partial rotary, all extras.
SMALL = {
    "plain": Shape(),
    "interleaved, capped, sinks": Shape(group=2, interleaved=True, softcap=5.0, sunk=True),
    "partial rotary, odd sizes": Shape(heads=2, dim=80, value_dim=48, rotary_dim=40),
    "window": Shape(group=3, dim=64, window=19),
    "group of eight": Shape(group=8, dim=128),
    "largest head": Shape(dim=256),
    "int8": Shape(group=2, dim=64, stored=torch.int8),
    "half": Shape(dim=96, dtype=torch.float16),
}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("name", SMALL)
def test_rows_of_segments_equal_the_reference(name: str) -> None:
    """Odd runs, a run of one key, one-token and empty segments; cut in pieces."""
    shape = SMALL[name]
    problem = make_problem(shape, [[37, 1, 100], [5], []], [2, 1, 1])
    out = problem.attended(Sizes(2, 128))
    assert difference(out, problem.expected()) < TOLERANCE[shape.dtype]
    if not shape.sunk:
        assert not out[-1].any()


def test_tiles_that_a_row_or_all_rows_do_not_see() -> None:
    problem = make_problem(Shape(), [[300]], [3])
    problem.tasks[0] = Task(0, 0, np.array([[0, 1], [290, 300], [7, 7]]))
    out = problem.attended(Sizes(3, 512))
    assert difference(out, problem.expected()) < 2e-6


def test_mass_of_keys_and_pages() -> None:
    problem = make_problem(Shape(group=2, softcap=8.0), [[40, 30], [9]], [2, 1])
    plan = make_plan(problem.lists, problem.tasks, Sizes(2, 128), problem.store.keys.shape[1])
    norm = torch.full(problem.query.shape[:2], torch.nan, device=DEVICE)
    problem.attended(Sizes(2, 128), norm)
    arguments = (problem.query, problem.store, _on_device(problem), problem.score, norm)
    mass = key_mass(*arguments, problem.query_turns)
    expected = mass_of_keys(
        problem.query.cpu(),
        problem.store.keys.cpu(),
        problem.lists,
        problem.tasks,
        problem.score.scale,
        Problem.turns_on("cpu", problem.query_turns),
        problem.score.softcap,
    )
    assert difference(mass, expected) < 1e-5
    pages = page_mass(mass, _on_device(problem), page_size=4, pages=100)
    assert float(pages.sum()) == pytest.approx(3 * 2, rel=1e-4)
    slot = int(problem.lists[0].slots[0])
    on_page = (plan.slots // 4 == slot // 4).cpu()
    assert float(pages[slot // 4]) == pytest.approx(float(expected[on_page].sum()), rel=1e-4)


def _on_device(problem: Problem):  # type: ignore[no-untyped-def]
    slots = problem.store.keys.shape[1]
    return make_plan(problem.lists, problem.tasks, Sizes(2, 128), slots, DEVICE)


def test_turning_queries_back_equals_turning_keys() -> None:
    """The identity everything rests on, in the reference itself."""
    problem = make_problem(Shape(dim=64, rotary_dim=32), [[20, 30]], [2])
    store = problem.store
    turned = store.keys.clone()
    for run in problem.lists[0].runs:
        slots = torch.from_numpy(problem.lists[0].slots[run.begin : run.end]).to(DEVICE)
        turned[:, slots] = problem.key_turns.apply(turned[:, slots], run.turn)
    seen = replace(problem, store=Store(turned, store.values), query_turns=_still(problem))
    assert difference(seen.expected(), problem.expected()) < 1e-6


def _still(problem: Problem) -> Turns:
    turns = problem.query_turns
    return Turns(turns.partner, torch.ones_like(turns.cos), torch.zeros_like(turns.sin))


def spans(*pairs: tuple[int, int]) -> Ints:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


SLOTS = np.arange(1, 11)
GOOD = KeyList(SLOTS, [Run(0, 10, 0)])


@pytest.mark.parametrize(
    ("listed", "task", "message"),
    [
        (KeyList(SLOTS + 10, [Run(0, 10, 0)]), Task(0, 0, spans((0, 3))), "slots .* outside"),
        (KeyList(SLOTS - 2, [Run(0, 10, 0)]), Task(0, 0, spans((0, 3))), "slots .* outside"),
        (KeyList(SLOTS, [Run(0, 9, 0)]), Task(0, 0, spans((0, 3))), "runs end at 9"),
        (KeyList(SLOTS, [Run(0, 5, 0), Run(6, 10, 0)]), Task(0, 0, spans((0, 3))), "in order"),
        (KeyList(SLOTS, [Run(0, 10, -1)]), Task(0, 0, spans((0, 3))), "no turn"),
        (GOOD, Task(0, 0, spans((0, 11))), "past the 10 keys"),
        (GOOD, Task(0, 1, spans((0, 3))), "no key list 1"),
        (GOOD, Task(1, 0, spans((0, 3))), "outside the batch"),
    ],
)
def test_a_plan_that_would_read_elsewhere_is_refused(
    listed: KeyList, task: Task, message: str
) -> None:
    with pytest.raises(KernelArgumentError, match=message):
        make_plan([listed], [task], Sizes(1, 128), slot_limit=11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a | {"query": a["query"].double()}, "queries of type"),
        (lambda a: a | {"query": a["query"].half()}, "queries of type"),
        (lambda a: a | {"query": a["query"].transpose(0, 1)}, "must be contiguous"),
        (lambda a: a | {"query": a["query"][..., :16].contiguous()}, "differ in dimensions"),
        (lambda a: a | {"query": a["query"].repeat(2, 1, 1)}, "rows of queries"),
        (lambda a: a | {"store": _resized(a["store"], lambda t: t[..., ::2])}, "rows of keys"),
        (
            lambda a: a | {"store": _resized(a["store"], lambda t: t[:, :9].contiguous())},
            "a store of 9",
        ),
        (
            lambda a: a | {"store": _resized(a["store"], lambda t: t.repeat(1, 1, 9))},
            "up to 256 fit",
        ),
        (lambda a: a | {"store": _resized(a["store"], lambda t: t.long())}, "not supported"),
        (lambda a: a | {"store": _resized(a["store"], lambda t: t.to(torch.int8))}, "scales"),
        (lambda a: a | {"out": a["query"].half()}, "the output must be like"),
        (lambda a: a | {"turns": _first_turn(a["turns"])}, "turns, 1 known"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    problem = make_problem(Shape(heads=2, group=2), [[20, 30]], [2])
    good = {
        "query": problem.query,
        "store": problem.store,
        "plan": _on_device(problem),
        "score": problem.score,
        "turns": problem.query_turns,
    }
    with pytest.raises(KernelArgumentError, match=message):
        attend(**change(good))


def _resized(store: Store, change) -> Store:  # type: ignore[no-untyped-def]
    return Store(change(store.keys), change(store.values))


def _first_turn(turns: Turns) -> Turns:
    return Turns(turns.partner, turns.cos[:1], turns.sin[:1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("dim", "group"), [(32, 1), (64, 8), (80, 3), (96, 2), (128, 4), (192, 1), (256, 8)]
)
def test_every_shape_on_the_gpu(dtype: torch.dtype, dim: int, group: int) -> None:
    shape = Shape(2, group, dim, interleaved=dim == 64, rotary_dim=dim // 2, dtype=dtype)
    problem = make_problem(shape, [[1000, 1, 37, 700], [5], [], [64], [129, 300]], [1, 5, 0, 64, 9])
    for sizes in (Sizes(1, 256), Sizes(max(1, 64 // group), 1024)):
        assert difference(problem.attended(sizes), problem.expected()) < TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("extras", [{}, {"softcap": 20.0, "sunk": True, "window": 100}])
def test_quantised_storage_on_the_gpu(stored: torch.dtype, extras: dict[str, float]) -> None:
    shape = Shape(2, 4, 128, dtype=torch.bfloat16, stored=stored, **extras)  # type: ignore[arg-type]
    problem = make_problem(shape, [[1000, 1, 37], [64]], [1, 33])
    for sizes in (Sizes(1, 256), Sizes(16, 1024)):
        assert difference(problem.attended(sizes), problem.expected()) < 1e-2


@pytest.mark.gpu
def test_no_less_exact_than_sdpa() -> None:
    shape = Shape(4, 4, 128, dtype=torch.bfloat16)
    problem = make_problem(shape, [[4096]], [1])
    problem.query_turns = _still(problem)
    expected = problem.expected()
    index = torch.from_numpy(problem.lists[0].slots).to(DEVICE)
    keys, values = problem.store.keys[None, :, index], problem.store.values[None, :, index]
    query = problem.query.view(1, 16, 1, 128)
    stock = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True).view(1, 16, 128)
    ours = difference(problem.attended(Sizes(1, 256)), expected)
    assert ours <= 1.05 * difference(stock, expected)


@pytest.mark.gpu
def test_a_store_of_more_than_2_to_the_31_elements() -> None:
    slots = 2**31 // (8 * 128) + 4096
    store = Store(*(torch.zeros(8, slots, 128, device=DEVICE, dtype=torch.bfloat16) for _ in "kv"))
    listed = KeyList(np.arange(slots - 300, slots), [Run(0, 300, 0)])
    task = Task(0, 0, spans((0, 300)))
    near = torch.randn(2, 8, 300, 128, device=DEVICE).bfloat16()
    store.keys[:, -300:], store.values[:, -300:] = near[0], near[1]
    query = torch.randn(1, 8, 128, device=DEVICE).bfloat16()
    plan = make_plan([listed], [task], Sizes(1, 256), slots, DEVICE)
    out = attend(query, store, plan, Score(0.1))
    weights = torch.softmax((query[0, :, None] @ near[0].transpose(1, 2)).float() * 0.1, -1)
    expected = (weights.bfloat16() @ near[1])[:, 0][None]
    assert difference(out, expected.cpu().double()) < 1e-2
    assert plain(store.keys[:1, :1], None).sum() == 0
