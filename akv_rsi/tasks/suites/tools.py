"""``tools``: operate services by calls (the shape of AgentBench). Polls are long and frequent."""

from __future__ import annotations

from akv_rsi.tasks.suites.world import ScriptedSuite, Skin

SUITE = ScriptedSuite(
    Skin(
        name="tools",
        system=(
            "you are an operations agent . answer with one command : "
            "connect , list , query , status , deploy , patch , put , note , disconnect"
        ),
        goal="bring the cluster into the wanted state",
        setup=("connect", "access_token"),
        finish="disconnect",
        search="list",
        view="query",
        put="put",
        poll=("status job", "status node", "status backup"),
        attempt=("deploy stack", "deploy canary"),
        repair="patch",
        artifact="job_result",
        places=tuple(
            f"{stem}_table"
            for stem in """users events alerts hosts volumes secrets images routes zones quotas
            leases tokens charts builds pools peers rules jobs nodes audits""".split()
        ),
        keys=tuple(
            """owner cluster replica endpoint protocol policy_name mount label channel upstream
            backend runtime driver kernel_tag bucket scope vendor subnet signer tier_name""".split()
        ),
        weights=(3, 5, 2, 2),
        noted=0.5,
        filler=(4, 10),
        chatter=(14, 28),
    )
)
