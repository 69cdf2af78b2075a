"""``web``: run errands in a browser (the shape of WebArena). Most facts are noted."""

from __future__ import annotations

from akv_rsi.tasks.suites.world import ScriptedSuite, Skin

SUITE = ScriptedSuite(
    Skin(
        name="web",
        system=(
            "you are a browser agent . answer with one command : "
            "login , search , visit , wait , press , retry , fill , note , checkout_order"
        ),
        goal="finish the errands in this shop",
        setup=("login", "member_name"),
        finish="checkout_order",
        search="search",
        view="visit",
        put="fill",
        poll=("wait page", "wait payment"),
        attempt=("press order", "press apply"),
        repair="retry",
        artifact="ticket_name",
        places=tuple(
            f"/{stem}"
            for stem in """orders basket profile returns offers garden kitchen travel books music
            sports toys shoes office pets tools_shelf lighting bedding bakery outlet""".split()
        ),
        keys=tuple(
            """colour seller brand material size_label coupon gift_wrap courier warehouse shelf
            delivery_day pickup_point flavour pattern origin packing grade collection season
            discount""".split()
        ),
        weights=(4, 2, 2, 4),
        noted=0.7,
        filler=(10, 20),
        chatter=(6, 12),
    )
)
