"""Every error akv-rsi raises on purpose.

AkvError                     the root: `except AkvError` catches all of ours
├── ConfigError              an option, file or argument cannot be used as given
├── OpError                  a cache operation that breaks the contract
│   └── GuardError           it would remove a pinned token, or everything
├── EngineError              the engine cannot do what was asked
│   ├── UnsupportedModel     the architecture cannot be run exactly
│   ├── ModelLoadError       weights or tokenizer missing, corrupt or incomplete
│   ├── ContextLimit         a request is longer than the model or the pool allows
│   └── NumericalError       a forward pass produced NaN or infinity
├── PolicyError              a policy program is at fault (data for the search)
│   ├── LintError            refused before running; carries line numbers
│   ├── PolicyTimeout        ran past its time or operation limit
│   ├── PolicyMemory         ran past its memory or recursion limit
│   ├── PolicyCrash          raised, or returned something that is not a decision
│   ├── CapabilityError      needs a verb or field the target does not offer
│   └── ParityError          the sandbox and plain Python decided differently
├── TaskError                a suite or environment breaks its protocol
├── LedgerError              a spending that was not reserved, or past its limit
└── StoreError               a run directory cannot be read or written
    ├── RunLocked            another process owns the run
    ├── RunCorrupt           an event's checksum does not match
    └── SealBroken           the sealed test would be read early, or twice
"""


class AkvError(Exception):
    """Root of the tree; its message is one line that says what to do."""


class ConfigError(AkvError):
    """An option, file or argument cannot be used as given."""


class OpError(AkvError):
    """A cache operation breaks the contract: its range, its order, or what it refers to."""


class GuardError(OpError):
    """An operation would remove a pinned token, or leave nothing visible."""


class EngineError(AkvError):
    """The engine cannot do what was asked."""


class UnsupportedModel(EngineError):
    """The architecture cannot be run exactly; the message names the reason."""


class ModelLoadError(EngineError):
    """Weights, configuration or tokenizer are missing, corrupt or incomplete."""


class ContextLimit(EngineError):
    """A request is longer than the model or the pool allows."""


class NumericalError(EngineError):
    """A forward pass produced NaN or infinity."""


class PolicyError(AkvError):
    """A policy program is at fault. In a search this is an outcome, never a crash."""


class LintError(PolicyError):
    """A policy's source was refused before running; the message carries line numbers."""


class PolicyTimeout(PolicyError):
    """A policy ran past its time or operation limit."""


class PolicyMemory(PolicyError):
    """A policy ran past its memory or recursion limit."""


class PolicyCrash(PolicyError):
    """A policy raised, or returned something that is not a decision."""


class CapabilityError(PolicyError):
    """A policy needs a verb or a field that the target does not offer."""


class ParityError(PolicyError):
    """The sandbox and plain Python took different decisions on the same context."""


class TaskError(AkvError):
    """A suite or an environment breaks its protocol."""


class LedgerError(AkvError):
    """A spending that was not reserved, or that goes past its limit."""


class StoreError(AkvError):
    """A run directory cannot be read or written."""


class RunLocked(StoreError):
    """Another process owns the run."""


class RunCorrupt(StoreError):
    """An event's checksum does not match its content."""


class SealBroken(StoreError):
    """The sealed test would be read before the choice is made, or a second time."""
