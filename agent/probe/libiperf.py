"""iperf3 from its library, for hosts that have ``libiperf.so.0`` and not the program: same arguments, same output.

A program of its own (``python -m agent.probe.libiperf ARGUMENTS``), because the PyPI wrapper iperf3 must not run inside
an agent: it closes descriptors that are not its own, redirects the process's standard output, and hangs once a report
passes the 64 KB of its pipe. Here only its binding is used: libiperf reads the arguments and prints the report on the
standard output, which the agent drains, with the deadline it has for every child. The calls are those of
src/main.c of iperf3.
"""

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

_NOT_A_TEST = 2  # iperf_run_server: somebody came who was not let in


def main(arguments: Sequence[str]) -> int:
    """Runs iperf3. The exit code: 1 when the library is not to be had or a test failed."""
    try:
        import iperf3  # noqa: PLC0415 - optional: pip install 'bandwitness[libiperf]'

        bound = iperf3.IPerf3(role="s" if "-s" in arguments else "c", verbose=False)
    except (ImportError, OSError, AttributeError) as error:
        print(f"iperf3: error - {error}", file=sys.stderr)
        return 1
    library, test = bound.lib, bound._test  # the wrapper has no way to pass arguments
    library.iperf_get_iperf_version.restype = ctypes.c_char_p
    version = library.iperf_get_iperf_version().decode()
    if list(arguments) == ["--version"]:
        print(f"iperf {version} (libiperf)")
        return 0
    words = [b"iperf3", *(argument.encode() for argument in arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    library.iperf_parse_arguments.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
    library.iperf_set_verbose(test, 0)
    if library.iperf_parse_arguments(test, len(words), argv) < 0:
        print(f"iperf3: parameter error - {_error(library)}", file=sys.stderr)
        return 1
    return _run(library, test)


def _run(library: Any, test: Any) -> int:
    if library.iperf_get_test_role(test) == b"c":
        if library.iperf_run_client(test) < 0:
            return _failed(library, test)
        return 0
    while True:
        result = library.iperf_run_server(test)
        if result < 0:
            return _failed(library, test)
        library.iperf_reset_test(test)
        if result != _NOT_A_TEST:  # one-off
            return 0


def _failed(library: Any, test: Any) -> int:
    """Prints the report with its ``error``, and ends the process, as the program does."""
    library.iperf_errexit.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    library.iperf_errexit(test, b"error - %s", _error(library).encode())
    return 1


def _error(library: Any) -> str:
    number = ctypes.c_int.in_dll(library, "i_errno").value
    said: bytes = library.iperf_strerror(number) or b"unknown"
    return said.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
