"""Ephemeral tags: what the tool marked as of passing interest goes after a few turns.

    dropped = {s : ephemeral(s) and age(s) >= keep}

Source: the <ephemeral_observation> tags of AKV-SGLang (github.com/thu-nics/AKV).
"""

from akv_rsi.policies.dsl import Context, drop, tunable

KEEP = tunable("keep", 1, 16, default=1)


def policy(ctx: Context) -> None:
    """Drops ephemeral segments of earlier turns."""
    for seg in ctx.segments:
        if seg.ephemeral and not seg.pinned and seg.age >= KEEP:
            drop(seg)
