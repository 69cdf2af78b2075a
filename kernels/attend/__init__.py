"""Attention over scattered slots: decoding and segment batches, as one list of work items."""
