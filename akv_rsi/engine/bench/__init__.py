"""How fast the engine is: ratios between arms that take turns in one process.

It imports what the engine does and no more, so that it runs on a bare machine as well.
"""
