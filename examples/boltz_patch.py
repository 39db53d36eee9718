# SPDX-License-Identifier: Apache-2.0
"""Boltz's own triangle multiplication with its kernel path led to this library, beside its PyTorch path. Needs boltz (tried: 2.2.1).

    python examples/boltz_patch.py        exit status 1 when a result is off, 2 without boltz, 3 where this GPU is not served
"""

import math
import sys

import torch

import trimul

N, WIDTH = 77, 128
BOUND = 1e-2  # relative RMS difference: bf16 operands in both, rounded at different places


def randomised(module):
    """Boltz initialises the output projection with zeros, with which any two kernels would agree."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.3 if parameter.dim() == 1 else 1 / math.sqrt(parameter.shape[-1]))
    return module


def main():
    # cuEquivariance need not be installed. From here on `from cuequivariance_torch import triangle_multiplicative_update`, which Boltz's kernel
    # path runs at every call, gives this library's.
    trimul.install_as_cuequivariance()
    try:
        from boltz.model.layers.triangular_mult import TriangleMultiplicationIncoming, TriangleMultiplicationOutgoing
    except ImportError as error:
        print(f"this example needs boltz: pip install boltz ({error})", file=sys.stderr)
        return 2

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    z = torch.randn(1, N, N, WIDTH, device=device)
    mask = (torch.rand(1, N, N, device=device) < 0.9).float()
    failed = False
    for layer in (TriangleMultiplicationOutgoing, TriangleMultiplicationIncoming):
        module = randomised(layer(WIDTH).to(device).eval())
        # As Boltz predicts: fp32 weights and pair under bf16 autocast.
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16):
            theirs = module(z, mask, use_kernels=False).double()
            before = trimul.plan_cache_info()
            try:
                ours = module(z, mask, use_kernels=True)
            except NotImplementedError as declined:
                print(f"not on this GPU: {declined}", file=sys.stderr)
                return 3
        error = ((ours - theirs).square().mean() / theirs.square().mean()).sqrt().item()
        after = trimul.plan_cache_info()
        has_been_here = after.hits + after.misses > before.hits + before.misses  # the kernel path did call this library
        is_right = has_been_here and math.isfinite(error) and error <= BOUND
        failed |= not is_right
        print(f"{'ok' if is_right else 'WRONG':6} {layer.__name__} on {device}: relative difference {error:.1e} between the two paths, at most {BOUND:g}")
    trimul.uninstall_as_cuequivariance()
    print(f"operators: {trimul.torch.backend()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
