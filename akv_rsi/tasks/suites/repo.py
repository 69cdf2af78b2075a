"""``repo``: repair a service in a code base (the shape of SWE-bench). Long views, few notes."""

from __future__ import annotations

from akv_rsi.tasks.suites.world import ScriptedSuite, Skin

SUITE = ScriptedSuite(
    Skin(
        name="repo",
        system=(
            "you are a software agent . answer with one command : "
            "checkout , grep , open , build , test , fix , edit , note , submit"
        ),
        goal="repair the service in this repository",
        setup=("checkout", "release_branch"),
        finish="submit",
        search="grep",
        view="open",
        put="edit",
        poll=("build service", "build docs"),
        attempt=("test unit", "test smoke"),
        repair="fix",
        artifact="build_artifact",
        places=tuple(
            f"{stem}.py"
            for stem in """billing router session cache worker parser loader mailer account invoice
            gateway schema planner indexer metrics storage uploader webhook scheduler
            renderer""".split()
        ),
        keys=tuple(
            """retry_limit cache_ttl log_level max_depth page_size time_zone user_role queue_name
            host_name region_code theme_name plan_tier auth_mode file_mode sort_order batch_size
            lock_file seed_value temp_dir trace_id""".split()
        ),
        weights=(5, 3, 2, 2),
        noted=0.3,
        filler=(8, 16),
        chatter=(10, 22),
    )
)
