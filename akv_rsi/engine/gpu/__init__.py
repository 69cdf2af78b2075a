"""The engine on a GPU: the same passes, attended to by the kernels, decode steps as CUDA graphs."""
