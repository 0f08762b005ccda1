"""Whether verl has loaded the plugin: verl itself says nothing when it could not."""

import importlib
import sys

from rstar2.errors import UserError

PLUGIN = "rstar2.verl_plugin.plugin"


class PluginMissing(UserError):
    """verl runs without our parts."""


def loaded() -> str:
    """What verl loaded in this process, by its entry point alone; a Ray task may ask too.

    Returns:
        Version of verl and of this package.

    Raises:
        ImportError: If the plugin cannot be imported; this says why.
        PluginMissing: If it can and verl did not look for it.
    """
    verl = importlib.import_module("verl")
    if PLUGIN not in sys.modules:
        importlib.import_module(PLUGIN)
        raise PluginMissing(
            "verl did not load the plugin of rstar2: install the package on every node "
            "(pip install -e .) and let VERL_USE_EXTERNAL_PLUGINS be unset or auto"
        )
    return f"verl {verl.__version__}, rstar2 {importlib.import_module('rstar2').__version__}"
