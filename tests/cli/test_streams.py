# SPDX-License-Identifier: Apache-2.0
"""Standard output and error that are closed, full or gone: exit codes stay what they are, and nothing is lost in silence."""
import os
import pty
import subprocess
import time

import pytest

import command


@pytest.fixture
def slow(tmp_path, rng):
    """Seconds of fp64 loops, from a small file."""
    return command.write_inputs(tmp_path / "slow", command.random_tensors(rng, (110,), 4, 384))


def shell(line, **options):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env={**os.environ, "T": str(command.CLI)}, timeout=300, **options)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2>&- >&-", "<&- >&- 2>&-", "2>/dev/full >/dev/full"])
def test_errors_that_cannot_be_told_keep_their_exit_code(redirection, small, tmp_path):
    out = tmp_path / "out"
    for exit_code, arguments in ((2, "run absent -o out"), (2, "frobnicate"), (3, f"run {small} -o {out} --precision mxfp8"), (1, f"run {small} -o {tmp_path}/absent/out"),
                                 (2, "explain --shape 1,2,3")):
        assert shell(f"exec $T {arguments} {redirection}").returncode == exit_code, arguments


def test_success_does_not_need_an_error_stream(small, tmp_path):
    for redirection in ("2>&-", "2>/dev/full", "<&- 2>&-"):
        assert shell(f"exec $T run {small} -o {tmp_path}/out {redirection}").returncode == 0
        assert command.read_out(tmp_path / "out")[0] == "F32"


def test_no_file_takes_the_place_of_a_closed_stream(small, tmp_path):
    """The lowest free number is given to the next file that is opened: a message would end up in it."""
    result = shell(f"exec $T run {small} -o {tmp_path}/out >&-")
    assert result.returncode == 1 and "standard output cannot be written: Bad file descriptor" in result.stderr
    assert command.read_out(tmp_path / "out")[0] == "F32"


def test_terminal_that_vanishes_does_not_end_the_work(slow, tmp_path):
    terminal, other_end = pty.openpty()
    process = subprocess.Popen([command.CLI, "run", slow, "-o", tmp_path / "out", "--impl", "reference", "--repeat", "12"], stdout=subprocess.PIPE, stderr=other_end,
                               start_new_session=True)
    os.close(other_end)
    shown = b""
    while b"computing" not in shown:
        shown += os.read(terminal, 4096)  # fails when the command ends before it shows anything
    os.close(terminal)
    time.sleep(0.7)
    assert process.wait(120) == 0, "the progress line could not be written"
    assert command.read_out(tmp_path / "out")[0] == "F32"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["info"], ["info", "--json"], ["explain", "--shape", "1,8,8,8"]])
def test_output_that_cannot_be_written_is_told_with_its_reason(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([command.CLI, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "trimul: error: standard output cannot be written: No space left on device\n"


def test_long_work_ends_when_its_output_is_lost():
    with open("/dev/full", "w") as full:
        result = subprocess.run([command.CLI, "verify", "--device", "cpu"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert result.returncode == 1
    assert result.stderr == "trimul: error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [["info"], ["verify", "--device", "cpu"]])
def test_reader_that_has_gone_is_an_output_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([command.CLI, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr == "trimul: error: standard output cannot be written: Broken pipe\n"
