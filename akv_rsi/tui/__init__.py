"""The inspector: a Textual app over small widgets that only reads the run store."""
