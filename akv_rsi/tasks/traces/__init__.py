"""Real transcripts: reading them, calibrating them, and what they and their policies cost."""
