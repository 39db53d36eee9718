# SPDX-License-Identifier: Apache-2.0
"""torch.set_num_threads bounds what a call takes; the number of threads changes no bit; forks and many threads."""

import os
import signal
import threading
import time

import torch

import cases
import trimul

update = trimul.triangle_multiplicative_update


def test_plans_take_no_more_threads_than_torch():
    desc = trimul.TensorDesc((200, 200, 64), "fp32", "cpu")
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        plan = trimul.TriangleMultiplicativeUpdateFwd(desc)
        most = min(threads, trimul.heuristics.recommend(200, 64, c_z=64, dtype="fp32", device="cpu").threads)
        assert f"threads: {most}\n" in plan.explain()
    forced = trimul.TriangleMultiplicativeUpdateFwd(desc, knobs={"threads": 5})
    assert "threads: 5\n" in forced.explain()


def test_the_drop_in_follows_the_setting(rng):
    """Another number is another plan: a miss, then hits."""
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    trimul.clear_plan_cache()
    for threads, misses in ((1, 1), (2, 2), (1, 2), (2, 2)):
        torch.set_num_threads(threads)
        update(x, **parameters)
        assert trimul.plan_cache_info().misses == misses


def test_results_do_not_depend_on_threads(rng):
    for tokens in (9, 65):
        x, mask = cases.random_x(rng, "cpu", 2, tokens), cases.random_mask(rng, "cpu", 2, tokens, tokens)
        parameters = cases.random_parameters(rng, "cpu")
        results = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append((cases.assert_update if tokens == 9 else update)(x, "incoming", mask, **parameters))
        assert all(torch.equal(result, results[0]) for result in results)


def test_settings_of_torch_stay(rng):
    torch.set_num_threads(2)
    update(cases.random_x(rng, "cpu", 65), **cases.random_parameters(rng, "cpu"))
    assert torch.get_num_threads() == 2


def test_errors_belong_to_their_thread(rng):
    """Messages of calls that fail at the same time do not mix."""
    x, parameters = cases.random_x(rng, "cpu", 5), cases.random_parameters(rng, "cpu")
    wrong = []

    def work(k):
        for _ in range(200):
            try:
                update(x, mask=torch.ones(6 + k, 5), **parameters)
                wrong.append("no error")
            except ValueError as error:
                if f"is {6 + k}," not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_computes(rng):
    """As workers of a data loader do, after the parent has used its threads. (torch's own threads do not survive that: no torch in the child.)"""
    x, parameters = cases.random_x(rng, "cpu", 65), cases.random_parameters(rng, "cpu")
    torch.set_num_threads(2)
    expected = update(x, **parameters).numpy().tobytes()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if update(x, **parameters).numpy().tobytes() == expected else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done == (child, 0)
