"""Cairn's command line tool."""

VERSION = "0.1.0"  # that of include/cairn/api.h, which a test compares
