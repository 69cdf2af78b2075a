"""One built-in policy per file."""
