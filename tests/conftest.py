from __future__ import annotations

import os

import torch

# Kernels run in Triton's interpreter where there is no GPU. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
