"""Pages for a browser: one file each, no scripts to load, works offline."""
