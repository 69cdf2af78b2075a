"""Measures the kernels on one GPU: ``python -m akv_rsi.kernels.bench``, with torch and triton."""
