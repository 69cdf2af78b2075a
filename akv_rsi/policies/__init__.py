"""Policies: the DSL, its lint and sandbox, the built-in library, and export."""
