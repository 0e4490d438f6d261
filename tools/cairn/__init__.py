"""Cairn's command line tool."""

VERSION = "0.2.0"  # that of include/cairn/api.h, which a test compares
