"""Rolling drop with repositioning: as `rolling_drop`, and the gaps are closed at once.

    dropped = {s : kind(s) = tool_result and age(s) >= keep};  positions 0 .. attended - 1

Source: drop + repos of the AKV paper (arXiv:2610.28577).
"""

from akv_rsi.policies.dsl import Context, drop, repos, tunable

KEEP = tunable("keep", 1, 32, default=12)


def policy(ctx: Context) -> None:
    """Drops tool results of earlier turns but the last ones, and closes the gaps."""
    for seg in ctx.segments:
        if seg.kind == "tool_result" and not seg.pinned and seg.age >= KEEP:
            drop(seg)
    repos()
