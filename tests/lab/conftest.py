"""What the lab's tests share: every one of them needs a lab, and the programs a lab is made with."""

import shutil
from pathlib import Path

import pytest

from tests.lab.lab import SYSTEM_PATH

HERE = Path(__file__).parent
# tests/run.sh begins the files in this order, two for each of three processes: the longest, each with a short one.
ORDER = (
    "test_end_to_end_faults.py",
    "test_end_to_end.py",
    "test_end_to_end_no_tenant.py",
    "test_demo.py",
    "test_lab.py",
    "test_truth.py",
    "test_truth_ecmp.py",
)
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "tc", "ss", "nft", "iperf3", "fping")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.lab)
    order = {name: place for place, name in enumerate(ORDER)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)) if item.path.parent == HERE else -1)


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM_PATH) is None]
    if missing:
        pytest.fail(f"The lab needs {', '.join(missing)}: run deploy/setup.sh --tests", pytrace=False)
