"""Where the checkout is: presets, notebooks and results lie beside the package, not in it."""

from pathlib import Path

from rstar2.errors import UserError


class CheckoutError(UserError):
    """No checkout of rstar2 is in reach."""


def project_root() -> Path:
    """The checkout: the nearest folder upwards that holds ``presets/``, else the package's.

    Raises:
        CheckoutError: If there is none.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if (folder / "presets").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise CheckoutError(f"no presets/ above {here}: run this inside a checkout of rstar2")
