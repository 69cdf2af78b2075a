"""Attention mass: a tool result goes when the last three turns hardly looked at it.

    dropped = {s : kind(s) = tool_result, age(s) >= 3, attention(s) < epsilon}
    repos   iff position_span > reliable_span

``attention`` is the largest share that one of the last three calls gave the segment, so below
epsilon means below it three times. Source: the engine-driven policy of this project.
"""

from akv_rsi.policies.dsl import Context, drop, repos, tunable

EPSILON = tunable("epsilon", 0.0005, 0.2, default=0.01, log=True)


def policy(ctx: Context) -> None:
    """Drops tool results that three calls in a row gave less than epsilon."""
    for seg in ctx.segments:
        idle = seg.kind == "tool_result" and not seg.pinned and seg.age >= 3
        if idle and seg.attention < EPSILON:
            drop(seg)
    if ctx.position_span > ctx.reliable_span:
        repos()
