"""Commands typed in this process; what is heavy is imported once."""

import sys

import pytest

import rstar2.cli


class Typed:
    """Types ``rstar2 …``, after the words that a test file always begins with."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        *first: str,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self._first = first

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._monkeypatch.setattr(sys, "argv", ["rstar2", *self._first, *words])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            rstar2.cli.main()
        out, err = self._capfd.readouterr()
        return int(ended.value.code or 0), out, err

    def shown(self, *words: str) -> str:
        """What a command that succeeds writes on stdout."""
        code, out, err = self(*words)
        assert (code, err) == (0, "")
        return out

    def refused(self, *words: str) -> str:
        """The one line on stderr of a command that must be refused."""
        code, out, err = self(*words)
        assert (code, out) == (2, ""), err
        assert err.startswith("rstar2: ")
        assert err.count("\n") == 1
        return err
