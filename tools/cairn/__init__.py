"""Cairn's command line tool."""

VERSION = "1.0.0"  # as in include/cairn/api.h; a test compares them
