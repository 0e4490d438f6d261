"""Watches many processes and machines with Cairn: tools/fleet/README.md.

The package `cairn` uses nothing of this package.
"""

import importlib

from cairn.errors import UserError

# The names of the distributions, where they differ from the name of the module.
DISTRIBUTIONS = {"opentelemetry": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"}


def need(module, option):
    """The module; UserError where it is not installed."""
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise UserError(f"{option} needs the Python package {name}, which is not installed: "
                        f"pip install {DISTRIBUTIONS.get(name, name)} (tools/fleet/README.md "
                        "explains it for Debian's Python)") from error
    except ImportError as error:  # the package does not fit another one that is installed
        raise UserError(f"{option}: the Python package {name} cannot be used: {error}") from error
