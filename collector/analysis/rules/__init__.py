"""One rule a file, each a pure function rows -> flags with a version."""
