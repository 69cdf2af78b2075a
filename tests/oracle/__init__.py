"""The oracle, and everything that is compared with it.

`book` and `oracle` are the independent side and import nothing of akv_rsi; `models` and `histories`
say what is run, `faults` what a broken engine would give. `convert` and `harness` reach over to
akv_rsi. Tolerances are fp32, largest logit difference.

Known pitfalls of such caches, by the numbers that tests name, and where each is a case:
1 corruption under pressure (`test_pressure`, `test_pool`), 2 and 3 stale entries after a cut or an
eviction (`test_recovery`), 4 double free and 5 miscounted pages (`check` after every step of
`test_machine`; `test_pool`), 6 dead branches kept alive (`test_pressure`), 7 a match that modifies
(`test_radix`), 8 to 11 isolation (`test_engine_equals_oracle`), 12 chained shifts
(`test_copy_mode`), 14 rotary dimensions (every model of `models`), 15 batched paths after an
eviction (`test_recovery`, `test_random_sessions`), 16 cursors of cache reuse (chunk sweeps in
`test_engine_equals_oracle`), 17 windows (`test_refresh`), 18 defragmentation (`test_defrag`),
19 lost sinks (`test_refusals`: what is pinned cannot be dropped).
"""
