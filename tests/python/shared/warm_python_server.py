"""The process whose forks warm_python.py runs. Usage: warm_python_server.py SOCKET MODULE..."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
from typing import Any

from warm_python import FREE, READ_AT_START

Request = dict[str, Any]


class Server:
    """Forks for each request; tells how each fork ended."""

    def __init__(self, address: str, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._woken, waker = socket.socketpair()
        for each in (self._woken, waker):
            each.setblocking(False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for file in (self._listener, self._woken, sys.stdin):
            self._selector.register(file, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """In the server, returns None at the end of its parent; in a fork, the request."""
        while True:
            for key, _ in self._selector.select():
                file: Any = key.fileobj
                if file is sys.stdin:
                    for pid in self._running:
                        os.kill(pid, signal.SIGKILL)
                    return None
                if file is self._listener:
                    request = self._accept()
                    if request is not None:
                        return request
                elif file is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        file.recv(4096)
                    self._reap()
                elif file in self._running.values():
                    self._heed(file)

    def _accept(self) -> Request | None:
        client, _ = self._listener.accept()
        size, files, _, _ = socket.recv_fds(client, 8, 3)
        with client.makefile("rb") as stream:
            request: Request = json.loads(stream.read(int.from_bytes(size, "little")))
        if not self._is_possible(request["environment"]):
            client.sendall(b"n")
            pid = None
        elif (pid := os.fork()) == 0:
            self._become(request, files)
            client.close()
            return request
        for file in files:
            os.close(file)
        if pid is None:
            client.close()
        else:
            client.sendall(b"f")
            self._running[pid] = client
            self._selector.register(client, selectors.EVENT_READ)
        return None

    def _is_possible(self, environment: dict[str, str]) -> bool:
        """Whether no variable that was read before the fork has another value."""
        changed = {name for name, _ in environment.items() ^ self._environment.items()}
        return not any(name.startswith(READ_AT_START) or not name.startswith(FREE) for name in changed)

    def _become(self, request: Request, files: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN if request["ignores"] else signal.default_int_handler)
        self._selector.close()
        for each in (self._listener, self._woken, self._waker, *self._running.values()):
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)

    def _heed(self, client: socket.socket) -> None:
        """Passes signals on; a client that is gone takes its fork with it."""
        pid = next(pid for pid, each in self._running.items() if each is client)
        numbers = client.recv(16)
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)
        if not numbers:
            self._selector.unregister(client)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self._running.pop(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(client)
            with contextlib.suppress(OSError):
                client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
            client.close()


def _open_streams(unbuffered: bool) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file: Any = io.FileIO(number, "w" if number else "r", closefd=False)
        if number == 0 or not unbuffered:
            file = io.BufferedWriter(file) if number else io.BufferedReader(file)
        # Lines of errors are written at once, as Python does.
        text = io.TextIOWrapper(file, line_buffering=number == 2, write_through=bool(number) and unbuffered)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def run(request: Request, by_imports: dict[str, str]) -> None:
    """What Python does with its words; imports have set the variables `by_imports`."""
    words: list[str] = request["words"]
    environment: dict[str, str] = request["environment"]
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(by_imports | environment)
    _open_streams(bool(environment.get("PYTHONUNBUFFERED")))
    sys.executable, sys.orig_argv = request["executable"], [request["executable"], *words]
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    first = {"-c": "", "-m": request["folder"]}.get(words[0], os.path.dirname(os.path.realpath(words[0])))
    sys.path[:] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    if words[0] == "-m":
        sys.argv[:] = ["-m", *words[2:]]
        runpy._run_module_as_main(words[1])
        return
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        code = compile(words[1], "<string>", "exec")
    else:
        sys.argv[:] = words
        main.__file__ = words[0]
        with open(words[0], "rb") as file:
            code = compile(file.read(), words[0], "exec")
    exec(code, main.__dict__)


def main() -> None:
    address, *modules = sys.argv[1:]
    environment = dict(os.environ)
    for name in ("torch", *modules):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in the forks"
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], 100)  # as in tests, see shared_fixtures.py
    server = Server(address, environment)
    os.write(1, b"ready\n")
    request = server.serve()
    if request is None:
        os._exit(0)
    del server
    this_module = sys.modules["__main__"]  # keeps its names
    try:
        run(request, {name: value for name, value in os.environ.items() if name not in environment})
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frames of this file.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is vars(this_module):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


if __name__ == "__main__":
    main()
