"""Writes grafana/dashboards/*.json from the definitions in grafana/boards: `python -m grafana.make_dashboards`."""

import json
from pathlib import Path

from grafana.boards import bursts, fleet, itself, nics, oversubscription, path
from grafana.panels import Json

DASHBOARDS: tuple[Json, ...] = tuple(
    module.DASHBOARD for module in (fleet, path, oversubscription, bursts, nics, itself)
)  # in the order of the README
DIRECTORY = Path(__file__).parent / "dashboards"


def files() -> dict[str, str]:
    """Name of each file and its text."""
    return {
        f"{dashboard['uid'].removeprefix('bandwitness-')}.json": json.dumps(dashboard, indent=2, ensure_ascii=False)
        + "\n"
        for dashboard in DASHBOARDS
    }


def main() -> None:
    """Writes all files; removes those of dashboards that are no more."""
    DIRECTORY.mkdir(exist_ok=True)
    made = files()
    for name, text in made.items():
        (DIRECTORY / name).write_text(text)
    for old in DIRECTORY.glob("*.json"):
        if old.name not in made:
            old.unlink()


if __name__ == "__main__":
    main()
