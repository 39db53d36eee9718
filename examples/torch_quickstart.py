# SPDX-License-Identifier: Apache-2.0
"""The update of PyTorch tensors in three forms: the drop-in function, a plan on prepared weights, and a CUDA graph of it.

    python examples/torch_quickstart.py        on a GPU that serves it, else on the CPU; exit status 1 when a result is off
"""

import sys

import torch

import trimul

N, C_Z, C = 100, 128, 128


def device_and_dtype():
    """A GPU with bf16 where this library serves it, else the CPU with fp32. Asks without computing anything."""
    if torch.cuda.is_available():
        try:
            trimul.TriangleMultiplicativeUpdateFwd(trimul.TensorDesc((1, N, N, C_Z), torch.bfloat16, "cuda"), c_hidden=C).check_support()
            return torch.device("cuda"), torch.bfloat16
        except NotImplementedError as declined:
            print(f"not on this GPU: {declined}")
    return torch.device("cpu"), torch.float32


def make_problem(device, dtype):
    torch.manual_seed(0)
    x = torch.randn(1, N, N, C_Z, device=device, dtype=dtype)
    mask = (torch.rand(1, N, N, device=device) < 0.9).to(dtype)
    matrix = lambda rows, columns: (torch.randn(rows, columns, device=device) * columns**-0.5).to(dtype)
    weights = {
        "p_in_weight": matrix(2 * C, C_Z), "g_in_weight": matrix(2 * C, C_Z), "p_out_weight": matrix(C_Z, C), "g_out_weight": matrix(C_Z, C_Z),
        "norm_in_weight": 1 + 0.1 * matrix(1, C_Z)[0], "norm_out_bias": matrix(1, C)[0],
    }  # fmt: skip
    return x, mask, weights


def main():
    device, dtype = device_and_dtype()
    x, mask, parameters = make_problem(device, dtype)
    failed = []

    def report(what, is_right):
        print(f"{'ok' if is_right else 'WRONG':6} {what}")
        if not is_right:
            failed.append(what)

    with torch.inference_mode():
        # 1. One call. It reads the weights every time, so it follows whatever is done to them.
        update = trimul.triangle_multiplicative_update(x, direction="outgoing", mask=mask, **parameters)
        # The oracle: plain loops in fp64.
        exact = trimul.reference.triangle_multiplicative_update_reference(x, "outgoing", mask, **parameters, rounding="none")
        error = ((update - exact).square().mean() / exact.square().mean()).sqrt().item()
        report(f"drop-in on {device} in {dtype}: relative error {error:.1e} to fp64", error < {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype])

        # 2. The same with everything decided once: shapes and flags in the plan, weights packed, workspace the caller's.
        weights = trimul.prepare_weights(**parameters)
        plan = trimul.TriangleMultiplicativeUpdateFwd(x, "outgoing", c_hidden=C, has_mask=True)
        workspace = torch.empty(plan.get_workspace_size(), dtype=torch.uint8, device=device)
        out = torch.empty_like(x)
        plan.execute(x, mask, weights, out, workspace)
        report(f"plan of {plan.implementation}, {workspace.numel()} bytes of workspace: bitwise the drop-in's result", torch.equal(out, update))

        # 3. In place: x + update(x), rounded once.
        in_place = trimul.TriangleMultiplicativeUpdateFwd(x, "outgoing", c_hidden=C, has_mask=True, residual=True)
        z = x.clone()
        in_place.execute(z, mask, weights, z, workspace)
        added = trimul.triangle_multiplicative_update(x, "outgoing", mask, **parameters, residual=True)
        report("residual in place: bitwise the drop-in's with residual=True", torch.equal(z, added))

        # 4. A graph of one execute; a replay reads what the tensors hold by then.
        if device.type == "cuda":
            graph = plan.make_cuda_graph(x, mask, weights, out, workspace)
            x.normal_()
            graph.replay()
            report("graph: follows a changed x", torch.equal(out, trimul.triangle_multiplicative_update(x, "outgoing", mask, **parameters)))
        else:
            print("       graph: left out, there is no GPU that serves this")

    print(f"plans: {trimul.plan_cache_info()}; operators: {trimul.torch.backend()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
