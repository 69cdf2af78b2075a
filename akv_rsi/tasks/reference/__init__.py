"""The reference agent: its chat format, training script and weights."""
