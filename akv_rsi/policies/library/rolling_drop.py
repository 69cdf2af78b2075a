"""Rolling drop: tool results stay for a fixed number of turns.

    dropped = {s : kind(s) = tool_result and age(s) >= keep}

Source: the rolling-drop policy of the AKV paper (arXiv:2610.28577), which uses keep = 12.
"""

from akv_rsi.policies.dsl import Context, drop, tunable

KEEP = tunable("keep", 1, 32, default=12)


def policy(ctx: Context) -> None:
    """Drops tool results of earlier turns but the last ones."""
    for seg in ctx.segments:
        if seg.kind == "tool_result" and not seg.pinned and seg.age >= KEEP:
            drop(seg)
