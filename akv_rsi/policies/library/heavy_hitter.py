"""Heavy hitters: above a limit, the tool results that were looked at least go first.

    while attended > share * reliable_span:  drop argmin attention(s),
        s in {kind(s) = tool_result, age(s) >= recent}
    repos iff position_span > reliable_span

Source: H2O, Zhang et al. 2023 (arXiv:2306.14048), by message instead of by token.
"""

from akv_rsi.policies.dsl import Context, drop, repos, tunable

SHARE = tunable("share", 0.2, 2.0, default=0.8)
RECENT = tunable("recent", 1, 16, default=3)


def policy(ctx: Context) -> None:
    """Drops what drew the least attention until the rest fits."""
    surplus = ctx.attended - SHARE * ctx.reliable_span
    ranked = [
        (seg.attention, seg.id, seg)
        for seg in ctx.segments
        if seg.kind == "tool_result" and not seg.pinned and not seg.dropped and seg.age >= RECENT
    ]
    for _, _, seg in sorted(ranked):
        if surplus > 0:
            drop(seg)
            surplus -= seg.tokens
    if ctx.position_span > ctx.reliable_span:
        repos()
