"""The derived tree against the engine's own, after a cohort that fits into its pool."""

import numpy as np
import pytest

from akv_rsi.config import EngineConfig
from akv_rsi.insight.tree import tree_of
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.bench import Bench
from akv_rsi.tasks.cohort import run_cohort
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.load import load_agent
from akv_rsi.tasks.suites import load_suite, task_refs
from akv_rsi.types import Segment

REFRESHING = """
from akv_rsi.policies.dsl import Context, drop, refresh


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "tool_result" and seg.age >= 3 and not seg.dropped:
            drop(seg)
        if seg.kind == "tool_call" and seg.age == 1:
            refresh(seg)
"""


def paths(node, above=()):
    """From the root to each leaf of the engine's tree: ``"ops"``, or so many tokens in a row."""
    for child in node.children.values():
        if child.applied is not None:
            here = (*above, "ops")
        elif above and above[-1] != "ops":
            here = (*above[:-1], above[-1] + len(child.tokens))
        else:
            here = (*above, len(child.tokens))
        if child.children:
            yield from paths(child, here)
        else:
            yield here


def derived_paths(edges, above=()):
    """The same of a derived tree."""
    for edge in edges:
        if not isinstance(edge.items[0], Segment):
            here = (*above, "ops")
        elif above and above[-1] != "ops":
            here = (*above[:-1], above[-1] + edge.slots)
        else:
            here = (*above, edge.slots)
        if edge.children:
            yield from derived_paths(edge.children, here)
        else:
            yield here


@pytest.mark.slow
def test_it_holds_what_the_engine_holds():
    agent = load_agent("reference", EngineConfig(threads=1))
    bench = Bench(agent, load_suite, PRESETS["claude"], 0.8, 200)
    specs = [library.spec("full"), library.spec("rolling_drop_repos", keep=4)]
    specs.append(PolicySpec("refreshing", source=REFRESHING, trusted=True))
    (task,) = task_refs(("repo",), "train", 1)
    rows = run_cohort(bench, specs, [task], keep=True).episodes
    talks = [(s.name, row[0].trajectory) for s, row in zip(specs, rows, strict=True)]
    edges = tree_of(talks)
    (root,) = (r for r in agent.engine._cache.tree.roots() if r.children)
    assert sorted(map(str, derived_paths(edges))) == sorted(map(str, paths(root)))
    held = sum(int(np.count_nonzero(node.slots >= 0)) for node in root)
    renewed = sum(len(node.slots) for node in root if node.applied is not None)
    assert renewed, "something was refreshed"
    assert held == sum(edge.slots for top in edges for _, edge in top.walk())
