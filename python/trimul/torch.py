# SPDX-License-Identifier: Apache-2.0
"""What belongs to PyTorch: the drop-in function, and which road its operators take."""

import torch as _torch  # says at once when it is missing

from ._drop_in import triangle_multiplicative_update
from ._operators import backend

__all__ = ["backend", "triangle_multiplicative_update"]
