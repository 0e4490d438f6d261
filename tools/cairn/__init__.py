"""Cairn's command line tool."""

VERSION = "0.2.0"  # as in include/cairn/api.h; a test compares them
