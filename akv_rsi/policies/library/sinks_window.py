"""Attention sinks and a window: the pinned beginning and the last tokens, at closed-up positions.

    visible = pinned + current turn + last `window` tokens

Source: StreamingLLM, Xiao et al. 2023 (arXiv:2309.17453); sinks are the pinned segments.
"""

from akv_rsi.policies.dsl import Context, drop, repos, tunable

WINDOW = tunable("window", 32, 8192, default=512, log=True)


def policy(ctx: Context) -> None:
    """Drops what has left the window, token by token."""
    behind = 0
    for seg in reversed(ctx.segments):
        if seg.age >= 1 and not seg.pinned and not seg.dropped:
            inside = max(0, WINDOW - behind)
            drop(seg[: max(0, seg.tokens - inside)])
        behind += seg.tokens
    repos()
