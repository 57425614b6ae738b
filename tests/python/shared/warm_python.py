"""Python processes that have PyTorch from their start: forks of a process that has imported it.

Importing PyTorch takes one to two seconds, Dynamo and Inductor two more, and many tests start processes that only run
something. `command()` is the path of a program that takes Python's own words (`-c code`, `-m module`, a file) and
behaves like `sys.executable`, except that these modules are loaded. Weft never is: what it reads at its import is read
anew. What a fork can't do is left to Python itself: other options, and variables that PyTorch or Python have read.

The program sends its words, environment, folder and files to a server that this process starts, passes signals on, and
ends as the fork ends. Tests about imports, warnings of a start or the end of a process use Python itself.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Variables that may differ from the server's: they are read after the fork.
FREE = (
    "WEFT",
    "PYTHONPATH",
    "PYTEST_",
    "HOME",
    "TMPDIR",
    "XDG_",
    "PATH",
    "PWD",
    "OLDPWD",
    "LC_CTYPE",
    "COLUMNS",
    "LINES",
    "_",
    # Set by modules that a test's own process has imported; they alone read them, or whenever they need one.
    "JAX_",
    "KERAS_",
    "TF_",
    "TPU_",
    "XLA_",
    "TORCHINDUCTOR_CACHE_DIR",
)
#: What Python looks at as it starts, though the name begins like one of those.
READ_AT_START = ("WEFT_RUN",)

# It imports little, since it runs once for each process.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
def is_for_a_fork(words):
    return bool(words) and (words[0] in ("-c", "-m") and len(words) > 1 or not words[0].startswith("-"))
def forward(number, frame):
    server.send(bytes([number]))
server = socket.socket(socket.AF_UNIX)
words = sys.argv[1:]
state = dict(words=words, folder=os.getcwd(), environment=dict(os.environ), executable=__file__,
             ignores=signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
request = json.dumps(state).encode()
answer = b""
passed_on = {{signal.SIGINT, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # the fork may have begun before they are passed on
if is_for_a_fork(words):
    try:
        server.connect({address!r})
        socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
        server.sendall(request)
        answer = server.recv(1)
    except OSError:
        answer = b""
if answer != b"f":
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    os.execv({python!r}, [{python!r}, *words])
for number in passed_on:
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, forward)
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
server.settimeout(0.2)  # a signal that comes right before a call waits for its end
status = b""
while len(status) < 4:
    try:
        status += server.recv(4) or (1).to_bytes(4, "little")
    except TimeoutError:
        pass
code = int.from_bytes(status[:4], "little", signed=True)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def _start(modules: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    folder = tempfile.mkdtemp(prefix="warm-python-")
    client, address = Path(folder, "python"), str(Path(folder, "socket"))
    client.write_text(CLIENT.format(python=sys.executable, address=address))
    client.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm_python_server.py")), address, *modules],
        env=environment,
        stdin=subprocess.PIPE,  # the server ends when this process has
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    _servers.append(server.pid)
    return str(client), environment


_servers: list[int] = []


def command(*modules: str) -> str:
    """What to run in the place of `sys.executable`; `modules` are loaded beside PyTorch."""
    return _start(modules)[0]


def environment() -> dict[str, str]:
    """The variables as they were when the process was started whose forks `command()` runs."""
    return dict(_start(())[1])


def cpu_seconds() -> float:
    """Of all processes that have run so, and ended."""
    ticks = 0
    for pid in _servers:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
