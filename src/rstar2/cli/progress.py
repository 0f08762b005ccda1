"""Progress bars of commands: on stderr, gone when the work is done, absent outside a terminal."""

from rich.console import Console
from rich.progress import Progress, ProgressColumn


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Make a bar with these columns; where stderr is no terminal it shows nothing."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
