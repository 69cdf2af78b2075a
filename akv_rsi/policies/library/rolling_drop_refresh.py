"""Rolling drop with refresh: a note about a dropped result is recomputed without it.

    dropped   = {s : kind(s) = tool_result, age(s) >= keep, no error}
    refreshed = notes about what is dropped now
    repos     iff position_span > reliable_span

A note written while its tool output was visible is no self-sufficient copy of it; recomputing the
note's few tokens makes it one. Source: this project.
"""

from akv_rsi.policies.dsl import Context, drop, refresh, repos, tunable

KEEP = tunable("keep", 1, 32, default=6)


def policy(ctx: Context) -> None:
    """Drops old tool results, refreshes the notes about them, repositions when it must."""
    for seg in ctx.segments:
        if seg.kind != "tool_result" or seg.pinned or seg.dropped or seg.is_error:
            continue
        if seg.age >= KEEP:
            drop(seg)
            for note in ctx.notes_about(seg):
                refresh(note)
    if ctx.position_span > ctx.reliable_span:
        repos()
