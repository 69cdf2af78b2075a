"""Attention of many rows over dense key lists: what a long prefill stages and then reads."""
