"""Cairn's command line tool."""
