"""Recall of pretrained models: facts in long transcripts, asked for under cache operations."""
