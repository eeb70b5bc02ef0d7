"""What each agent must do, and why. Pure.

``endpoints`` what a test holds · ``pairs`` who tests whom · ``rounds`` what may run together · ``placement`` and
``timetable`` when · ``pinglists`` who probes whom · ``plan`` all of it, as the plans that agents are sent.
"""

from collections.abc import Sequence


class PlanError(ValueError):
    """The fleet cannot be measured as configured; ``problems`` says why, each with its arithmetic."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
