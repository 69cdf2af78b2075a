"""The oracle, and everything that is compared with it.

`book` and `oracle` are the independent side and import nothing of akv_rsi; `models` and `histories`
say what is run, `faults` what a broken engine would give. `convert` and `harness` reach over to
akv_rsi. Tolerances are fp32, largest logit difference.
"""
