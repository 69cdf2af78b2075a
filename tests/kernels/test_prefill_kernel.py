from __future__ import annotations

import numpy as np
import pytest
import torch
from akv_rsi.kernels.attend.plan import KeyList, Run, Task
from akv_rsi.kernels.attend.triton import Score, Store
from akv_rsi.kernels.errors import KernelArgumentError
from akv_rsi.kernels.prefill.plan import make_staged_plan
from akv_rsi.kernels.prefill.triton import attend_staged, stage

from .problems import DEVICE, Shape, difference, make_problem
from .test_attend import SMALL, TOLERANCE


@pytest.mark.parametrize("name", SMALL)
def test_staged_rows_equal_the_reference(name: str) -> None:
    shape = SMALL[name]
    problem = make_problem(shape, [[30, 1, 9], [5], []], [3, 1, 1])
    out = problem.staged()
    assert difference(out, problem.expected()) < TOLERANCE[shape.dtype]
    if not shape.sunk:
        assert not out[-1].any()


def test_what_lies_behind_a_list_does_not_matter() -> None:
    """Keys and values of the next list are in the same tile; they may be anything."""
    problem = make_problem(Shape(), [[40], [30]], [1, 1])
    expected = problem.expected()
    for tensor in (problem.store.keys, problem.store.values):
        tensor[:, torch.from_numpy(problem.lists[1].slots).to(DEVICE)] = torch.nan
    assert difference(problem.staged()[:1], expected[:1]) < 2e-6


def test_arguments_that_do_not_fit_are_refused() -> None:
    problem = make_problem(Shape(heads=2, dim=36, dtype=torch.float16), [[20]], [2])
    plan = make_staged_plan(problem.lists, problem.tasks, 64, DEVICE)
    dense = stage(problem.store, plan, problem.key_turns, problem.query)
    with pytest.raises(KernelArgumentError, match="not 16-byte aligned"):
        attend_staged(problem.query, dense, plan, Score(0.1))
    aligned = make_problem(Shape(), [[20]], [2])
    dense = stage(aligned.store, plan, None, aligned.query)
    short = Store(dense.keys[:, :9].contiguous(), dense.values[:, :9].contiguous())
    with pytest.raises(KernelArgumentError, match="20 keys are planned, 9 staged"):
        attend_staged(aligned.query, short, plan, Score(0.1))
    rows = make_staged_plan(aligned.lists, aligned.tasks, 4096, DEVICE)
    with pytest.raises(KernelArgumentError, match="blocks are too large"):
        attend_staged(aligned.query, dense, rows, Score(0.1))
    listed = KeyList(np.arange(5), [Run(0, 5, 0)])
    with pytest.raises(KernelArgumentError, match="past the 5 keys"):
        make_staged_plan([listed], [Task(0, 0, np.array([[0, 6]]))], 64)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("dim", "group"), [(32, 1), (64, 8), (80, 3), (96, 2), (128, 4), (192, 1), (256, 8)]
)
def test_every_shape_on_the_gpu(dtype: torch.dtype, dim: int, group: int) -> None:
    extras = {"softcap": 20.0, "sunk": True} if dim == 96 else {}
    shape = Shape(2, group, dim, rotary_dim=dim // 2, dtype=dtype, **extras)  # type: ignore[arg-type]
    problem = make_problem(shape, [[500, 1, 37], [5], [], [129, 300]], [300, 5, 0, 129])
    assert difference(problem.staged(), problem.expected()) < TOLERANCE[dtype]
