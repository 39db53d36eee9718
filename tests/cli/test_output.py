# SPDX-License-Identifier: Apache-2.0
"""The output file is replaced whole or not at all; places that cannot be written are found before anything is computed."""
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import numpy as np
import pytest

import command

OLD = b"old content"


def litter(directory):
    return [path.name for path in directory.iterdir() if path.name.startswith(".trimul")]


@pytest.fixture
def slow(tmp_path, rng):
    """Minutes of fp64 loops: who finds an error before the computation finds it at once. Few bytes, all the work is in C."""
    tensors = command.random_tensors(rng, (400,), 1, 2048)
    return command.write_inputs(tmp_path / "slow.safetensors", tensors)


@pytest.mark.parametrize("place, words", [
    (".", ["is a directory"]),
    ("directory", ["is a directory"]),
    ("directory/", ["is a directory"]),
    ("new/", ["is a directory"]),
    ("absent/out", ["No such file or directory"]),
    ("file/out", ["Not a directory"]),
    ("n" * 300, ["File name too long"]),
    ("/proc/out", ["cannot be"]),
    ("/dev/null/out", ["Not a directory"]),
])
def test_places_that_cannot_be_written_are_found_first(place, words, slow, tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(OLD)
    start = time.monotonic()
    # The path as text: joining would drop the slash at its end.
    path = place if place.startswith("/") else f"{tmp_path}/{place}"
    command.fails(command.run("run", slow, "-o", path, "--impl", "reference"), 1, *words)
    assert time.monotonic() - start < 20
    assert litter(tmp_path) == [] and (tmp_path / "file").read_bytes() == OLD


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_read_only_places_of_another_user(small, tmp_path):
    """As a user who may read the input but write neither the directory nor the old output."""
    out = tmp_path / "out"
    out.write_bytes(OLD)
    for parent in (tmp_path, *list(tmp_path.parents)[:3]):  # pytest's own, one more where its tests run in several processes
        if parent.owner() == tmp_path.owner() and "pytest" in str(parent):
            parent.chmod(0o755)
    # A copy of the command: the checkout may lie where no other user comes, as under /root.
    cli = tmp_path / "bin" / "trimul"
    cli.parent.mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(command.CLI, cli)
    for library in (command.CLI.parents[1] / "lib").glob("libtrimul.so*"):
        shutil.copy(library, tmp_path / "lib")
    for path in (out, tmp_path / "new"):
        command.fails(command.run("run", small, "-o", path, cli=cli, user=65534), 1, "Permission denied")
    assert out.read_bytes() == OLD and not (tmp_path / "new").exists() and litter(tmp_path) == []


def test_device_that_is_full(small):
    command.fails(command.run("run", small, "-o", "/dev/full"), 1, "/dev/full", "No space left on device")


def test_device_that_takes_all(small):
    command.succeeds(command.run("run", small, "-o", "/dev/null"))
    assert not os.path.isfile("/dev/null")


def test_file_size_limit_leaves_the_old_output(tmp_path, rng):
    path = command.write_inputs(tmp_path / "in", command.random_tensors(rng, (20,), 64, 32))
    out = tmp_path / "out"
    out.write_bytes(OLD)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    command.fails(command.run("run", path, "-o", out, preexec_fn=limit), 1, "File too large")
    assert out.read_bytes() == OLD and litter(tmp_path) == []


def test_output_over_the_input(tmp_path, rng):
    tensors = command.random_tensors(rng, (5,), 32, 32)
    path = command.write_inputs(tmp_path / "in", tensors)
    command.succeeds(command.run("run", path, "-o", tmp_path / "out"))
    command.succeeds(command.run("run", path, "-o", path))
    assert path.read_bytes() == (tmp_path / "out").read_bytes()


def test_output_over_the_input_stays_when_the_run_fails(small):
    content = small.read_bytes()
    command.fails(command.run("run", small, "-o", small, "--precision", "mxfp8"), 3)
    assert small.read_bytes() == content


def test_symbolic_link_stays_and_its_target_is_replaced(small, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere/target"
    target.write_bytes(OLD)
    (tmp_path / "link").symlink_to(target)
    command.succeeds(command.run("run", small, "-o", tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and command.read_out(target)[0] == "F32"


@pytest.mark.parametrize("place", ["target", "elsewhere/target", "second"])
def test_symbolic_link_to_nothing_stays_and_its_target_is_made(place, small, tmp_path):
    """As one to an existing file: relative to the link, through further links."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "second").symlink_to("elsewhere/third")
    (tmp_path / "elsewhere/third").symlink_to("../target")
    (tmp_path / "link").symlink_to(place)
    command.succeeds(command.run("run", small, "-o", tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "second").is_symlink()
    target = tmp_path / ("elsewhere/target" if place.startswith("elsewhere") else "target")
    assert not target.is_symlink() and command.read_out(target)[0] == "F32"


def test_symbolic_links_that_lead_nowhere_are_refused(small, tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "no_directory").symlink_to("absent/target")
    (tmp_path / "slash").symlink_to("absent/")
    for name, words in (("circle", "Too many levels of symbolic links"), ("no_directory", "No such file"), ("slash", "is a directory")):
        command.fails(command.run("run", small, "-o", tmp_path / name), 1, name, words)
        assert (tmp_path / name).is_symlink()


# ---- where standard output goes as well ------------------------------------------------------------------------------------


def tensor_file(content, path):
    path.write_bytes(content)
    return command.read_out(path)


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("kind", ["pipe", "fifo", "socket", "deleted file"])
def test_result_on_standard_output_is_the_file_alone(kind, options, small, tmp_path):
    # As /dev/stdout, which a command that takes it for a file to replace would replace on this machine.
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    arguments = [command.CLI, "run", small, "-o", tmp_path / "stdout", *options]
    if kind == "pipe":
        arguments[4] = "/dev/stdout"
        result = subprocess.run(arguments, capture_output=True)
        content = result.stdout
    elif kind == "fifo":
        os.mkfifo(tmp_path / "fifo")
        arguments[4] = tmp_path / "fifo"
        reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        with open(tmp_path / "fifo", "wb") as writer:
            result = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE)
        content = os.read(reader, 1 << 20)
    elif kind == "socket":
        ours, theirs = socket.socketpair()
        result = subprocess.run(arguments, stdout=theirs, stderr=subprocess.PIPE)
        theirs.close()
        content = ours.makefile("rb").read()
    else:
        with tempfile.TemporaryFile(dir=tmp_path) as file:
            result = subprocess.run(arguments, stdout=file, stderr=subprocess.PIPE)
            file.seek(0)
            content = file.read()
    assert (tmp_path / "stdout").is_symlink()
    assert result.returncode == 0, result.stderr
    assert tensor_file(content, tmp_path / "copy")[0] == "F32"
    assert b"cpu" in result.stderr, "the summary is on stderr"


def test_summary_is_not_lost_in_a_file_that_is_replaced(small, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        result = subprocess.run([command.CLI, "run", small, "-o", tmp_path / "out"], stdout=out, stderr=subprocess.PIPE)
    assert result.returncode == 0 and b"cpu" in result.stderr
    assert command.read_out(tmp_path / "out")[0] == "F32"


def test_devices_that_take_anything_change_nothing(small):
    result = command.run("run", small, "-o", "/dev/null")
    assert "cpu" in command.succeeds(result)
    with open("/dev/null", "w") as null:
        result = subprocess.run([command.CLI, "run", small, "-o", "/dev/null"], stdout=null, stderr=subprocess.PIPE)
    assert result.returncode == 0 and result.stderr == b""


def test_report_on_standard_output_is_the_report_alone():
    shape = ["--shape", "1,4,8,32", "--impl", "cpu", "--device", "cpu"]
    result = command.run("bench", *shape, "--json", "/dev/stdout")
    assert result.returncode == 0 and "ceiling:" in result.stderr
    assert command.json.loads(result.stdout)["results"]
    result = command.run("bench", *shape, "--html", "/dev/stdout")
    assert result.stdout.startswith("<!DOCTYPE html>") and "ceiling:" in result.stderr


def test_permissions(small, tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "old").chmod(0o640)
    for name in ("old", "new"):
        command.succeeds(command.run("run", small, "-o", tmp_path / name, umask=0o027))
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_plain_name_in_the_working_directory(small, tmp_path):
    command.succeeds(command.run("run", small.name, "-o", "out", cwd=tmp_path))
    assert command.read_out(tmp_path / "out")[0] == "F32"


# ---- signals -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path, rng):
    """A result of 32 MiB that takes little arithmetic: one token, many samples."""
    tensors = {"x": np.ones((1 << 16, 1, 1, 128), np.float32)}
    tensors |= {name: value for name, value in command.random_tensors(rng, (1,), 128, 1).items() if name != "x"}
    return command.write_inputs(tmp_path / "large.safetensors", tensors)


ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU]


def start(path, out, *options):
    """With the default answer to each signal: a test run in the background of a script has SIGINT ignored, and would hand that on."""
    def defaults():
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.Popen([command.CLI, "run", path, "-o", out, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=defaults)


def wait_until_half_written(process, directory):
    """True once a temporary file holds some of the result; False if the process ends before it was seen."""
    while process.poll() is None:
        for name in litter(directory):
            try:
                if (directory / name).stat().st_size > 0:
                    return True
            except FileNotFoundError:
                pass
        time.sleep(0.0005)
    return False


@pytest.mark.parametrize("number", ENDING)
def test_signal_while_writing_leaves_the_old_output(number, large, tmp_path):
    out = tmp_path / "out"
    out.write_bytes(OLD)
    process = start(large, out)
    assert wait_until_half_written(process, tmp_path), "the result was written before it was seen"
    process.send_signal(number)
    process.wait(60)
    assert process.returncode == -number
    assert out.read_bytes() == OLD and litter(tmp_path) == []


def test_signal_while_computing_leaves_the_old_output(slow, tmp_path):
    out = tmp_path / "out"
    out.write_bytes(OLD)
    process = start(slow, out, "--impl", "reference")
    time.sleep(0.7)
    process.terminate()
    process.wait(60)
    assert process.returncode == -signal.SIGTERM
    assert out.read_bytes() == OLD and litter(tmp_path) == []


def test_ignored_hangup_stays_ignored(large, tmp_path):
    process = subprocess.Popen(["nohup", command.CLI, "run", large, "-o", tmp_path / "out"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until_half_written(process, tmp_path)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert command.read_out(tmp_path / "out")[1].shape == (1 << 16, 1, 1, 128)


# ---- memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.needs_plain_build
def test_out_of_memory(tmp_path, rng):
    """A sparse file of 2 GiB of x under a limit of 1 GiB."""
    tensors = {name: value for name, value in command.random_tensors(rng, (1,), 32, 1).items() if name != "x"}
    tail = command.pack(tensors)
    end = 8 + int.from_bytes(tail[:8], "little")
    x_bytes = 2 << 30
    header = {"x": {"dtype": "F32", "shape": [x_bytes // 128, 1, 1, 32], "data_offsets": [0, x_bytes]}}
    for name, entry in command.json.loads(tail[8:end]).items():
        header[name] = entry | {"data_offsets": [offset + x_bytes for offset in entry["data_offsets"]]}
    beginning = command.file_bytes(header)
    with open(tmp_path / "in", "wb") as file:
        file.write(beginning)
        file.seek(len(beginning) + x_bytes)
        file.write(tail[end:])
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    command.fails(command.run("run", tmp_path / "in", "-o", tmp_path / "out", preexec_fn=limit), 4, "memory")
    assert not (tmp_path / "out").exists() and litter(tmp_path) == []
