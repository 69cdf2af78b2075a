"""Rows of KV from slot to slot, keys turned on the way or not."""
