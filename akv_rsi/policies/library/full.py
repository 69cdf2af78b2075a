"""Keeps everything: the reference every cost and accuracy is compared with.

dropped = {}
"""

from akv_rsi.policies.dsl import Context


def policy(ctx: Context) -> None:
    """Does nothing."""
