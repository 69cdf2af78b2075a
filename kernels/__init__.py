"""Triton kernels, each beside its plain torch reference. They import nothing of akv-rsi."""
