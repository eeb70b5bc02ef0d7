"""The project's own rules, run as tests: style, types, import layers, contract lint, freshness of generated code."""

import filecmp
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    run(BIN / "ruff", "check", ".")


def test_code_is_formatted() -> None:
    run(BIN / "ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_types_are_strict() -> None:
    run(BIN / "mypy")


def test_import_layers_hold() -> None:
    run(BIN / "lint-imports")


def test_contract_is_linted() -> None:
    run(BIN / "buf", "lint", cwd=ROOT / "proto")


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    run(ROOT / "proto/generate.sh", tmp_path)
    for fresh, committed in (
        (tmp_path / "bandwitness/v1", ROOT / "proto/bandwitness/v1"),
        (tmp_path / "collector/export/remote_write", ROOT / "collector/export/remote_write"),
    ):
        made = sorted(path.name for path in fresh.iterdir())
        assert made == sorted(path.name for path in committed.glob("*_pb2*") if path.is_file())
        _, different, missing = filecmp.cmpfiles(fresh, committed, made, shallow=False)
        assert (different, missing) == ([], []), "run proto/generate.sh and commit what it writes"
