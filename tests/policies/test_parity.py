"""The parity replay: agreement is proven, and a planted difference is found."""

from __future__ import annotations

import pytest
from conversations import opening, recorded

from akv_rsi.errors import CapabilityError, ParityError, PolicyTimeout
from akv_rsi.policies import executor, library
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.parity import check_parity
from akv_rsi.policies.spec import PolicySpec

RICH = PolicySpec(
    "rich",
    source="""
from akv_rsi.policies.dsl import Context, drop, identifiers, keep, overlap, refresh, repos, restore


def score(seg, ctx):
    value = seg.tokens * 0.75 ** seg.age - 2 * seg.mentioned_later + seg.attention
    if seg.superseded_by is not None or "amber" in seg.text:
        value -= len(identifiers(seg)) / (1 + len(seg.mentions))
    return value


def policy(ctx: Context) -> None:
    old = [s for s in ctx.segments if s.age >= 1 and not s.pinned]
    ranked = sorted(old, key=lambda s: (score(s, ctx), s.id))
    for i, seg in enumerate(ranked):
        if seg.dropped and i % 5 == 4:
            restore(seg)
        elif i * 2 < len(ranked):
            drop(seg[: max(0, int(score(seg, ctx)) % 7)] if i % 3 == 0 else seg)
            for note in ctx.notes_about(seg):
                refresh(note)
    if len(old) > 2:
        keep(max(old, key=lambda s: overlap(s, old[0])))
    if ctx.turn % 2 or any(s.dropped for s in ctx.segments):
        repos()
""",
)


def test_the_proof_counts_and_is_repeatable() -> None:
    with open_policy(RICH) as policy:
        snapshots = [s for seed in range(4) for s in recorded(seed, policy=policy)]
    proof = check_parity(RICH, snapshots)
    assert proof.decisions == len(snapshots) > 30
    assert proof == check_parity(RICH, snapshots)
    assert proof.digest != check_parity(library.spec("full"), snapshots).digest


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: powers differ by one in plain Python."""
    source = (
        "from akv_rsi.policies.dsl import drop\n"
        "def policy(ctx):\n"
        "    for s in ctx.segments:\n"
        "        if s.age == 2 ** 1:\n"
        "            drop(s)\n"
    )
    spec = PolicySpec("x", source=source)
    snapshots = recorded(1)
    check_parity(spec, [s for s in snapshots if s.turn != 3])  # at turn 3 the user message is hit
    monkeypatch.setattr(executor, "bounded_power", lambda base, exponent: base**exponent + 1)
    with pytest.raises(ParityError, match=r"x at turn \d+ of random-1: the sandbox decided"):
        check_parity(spec, snapshots)


def test_what_breaks_the_limits_never_runs_outside() -> None:
    spec = PolicySpec("x", source="def policy(ctx):\n    while True:\n        pass\n")
    with pytest.raises(PolicyTimeout):
        check_parity(spec, recorded(1), Limits(steps=1000))


def test_attention_that_was_not_measured() -> None:
    spec = PolicySpec("x", source="def policy(ctx):\n    x = ctx.segments[0].attention\n")
    with pytest.raises(CapabilityError, match="not measured"):
        check_parity(spec, [opening().snapshot()])
