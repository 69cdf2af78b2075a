"""From a search's configuration to the models it may ask."""

from __future__ import annotations

import math

from akv_rsi.search.config import SearchConfig
from akv_rsi.search.ledger import Ledger, Spend
from akv_rsi.search.llm.endpoint import Endpoint, Model
from akv_rsi.search.llm.exchange import Exchange

ENOUGH = 3  # a run that can pay for fewer proposals is no search


def models_of(config: SearchConfig) -> list[Model]:
    """The models of a configuration; `ConfigError` when one cannot be asked."""
    price_in, price_out = config.llm_price
    return [
        Model(
            name,
            config.llm_base_url,
            config.llm_key_env,
            price_in,
            price_out,
            config.llm_grammar,
        )
        for name in config.llm
    ]


def warning(proposals: float) -> str:
    """What to say when the money is short."""
    return f"warning: --max-usd pays for {proposals:g} proposals at worst; allow more, or use fewer"


def connect(config: SearchConfig) -> Exchange:
    """An account with ``max_usd`` dollars, and the models that draw on it."""
    usd = math.inf if config.max_usd is None else config.max_usd
    ledger = Ledger(Spend(usd=usd, llm_tokens=math.inf))
    models = models_of(config)
    for model in models:
        model.key()  # a missing key is told before anything is spent
    return Exchange({model.name: Endpoint(model) for model in models}, ledger)
