"""The `akv-rsi` command; one file per sub-command."""
