"""Libraries that only some commands need, and that are not installed with the tool."""

import importlib

from cairn.errors import UserError

# What pip calls them, where that is another name; and Debian's package, where there is one.
NAMES = {"opentelemetry": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
         "prometheus_client": "prometheus-client"}
DEBIAN = {"prometheus_client": "python3-prometheus-client"}


def need(module, option):
    """The module; UserError where it is not installed."""
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        debian = f"apt-get install {DEBIAN[name]}, or " if name in DEBIAN else ""
        raise UserError(f"{option} needs the Python package {name}, which is not installed: "
                        f"{debian}pip install {NAMES.get(name, name)} (docs/FLEET.md says how "
                        "beside Debian's Python)") from error
    except ImportError as error:  # one that does not go with another one that is installed
        raise UserError(f"{option}: the Python package {name} cannot be used: {error}") from error
