"""What holds for all tests."""

from hypothesis import settings

# No test asserts how long something takes: the machine may be busy with others.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
