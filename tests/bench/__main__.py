"""Runs one bench. Progress goes to standard error; the last line of standard output is one JSON object."""

import argparse
import importlib
import json
import sys

# Name -> module with ``run(quick: bool) -> dict``.
BENCHES = {
    "agent": "tests.bench.agent",
    "detect": "tests.bench.detect",
    "ingest": "tests.bench.ingest",
    "rtt": "tests.bench.rtt",
    "scrape": "tests.bench.scrape",
    "timetable": "tests.bench.timetable",
}


def main(arguments: list[str]) -> int:
    """Exit code: 0 measured, 1 could not be measured, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", choices=sorted(BENCHES))
    parser.add_argument("--quick", action="store_true", help="end within 60 s")
    options = parser.parse_args(arguments)
    try:
        figures = importlib.import_module(BENCHES[options.name]).run(options.quick)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        print(f"{options.name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
