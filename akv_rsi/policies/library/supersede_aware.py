"""Supersede-aware: a tool result goes when a later one answers the same call.

    dropped = {s : kind(s) = tool_result, superseded_by(s) exists, age(s) >= 1}
    repos   iff position_span > reliable_span

Lossless where a repeated call shows all that the earlier one showed. Source: this project.
"""

from akv_rsi.policies.dsl import Context, drop, repos


def policy(ctx: Context) -> None:
    """Drops superseded tool results."""
    for seg in ctx.segments:
        if seg.superseded_by is not None and not seg.pinned and seg.age >= 1:
            drop(seg)
    if ctx.position_span > ctx.reliable_span:
        repos()
