"""What the model reads after a call: the paper's four results, and malformed calls.

No address, machine path or duration ever stands in these texts, so that the same
program always gives the same tokens.
"""

from rstar2.protocol.calls import MalformedCall, ProgramCall
from rstar2.protocol.manifest import Manifest
from rstar2.protocol.types import CallStatus, RunStatus, ToolCall, ToolResult

NO_OUTPUT = "(no output)"
TIMEOUT_TEXT = "TimeoutError: the program did not finish within its time limit"

_CALL_STATUS = {
    RunStatus.OK: CallStatus.OK,
    RunStatus.ERROR: CallStatus.ERROR,
    RunStatus.TIMEOUT: CallStatus.TIMEOUT,
}


def response_text(result: ToolResult, manifest: Manifest) -> str:
    """The text of one of the four results of a program.

    Output; the last expression's value, or an explicit line, when nothing was printed;
    an error after what was printed before it; a timeout after what was printed before it.
    """
    printed = result.stdout.rstrip("\n")
    if result.status is RunStatus.OK:
        return printed or result.value or NO_OUTPUT
    if result.status is RunStatus.TIMEOUT:
        ending = TIMEOUT_TEXT
    else:
        ending = result.stderr.rstrip("\n")
        if not manifest.error_detail:
            ending = _naming_line(ending, result.error_type)
    return f"{printed}\n{ending}" if printed else ending


def _naming_line(traceback: str, error_type: str) -> str:
    """The line that names the error: the last one, unless its message has several lines."""
    lines = traceback.split("\n")
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2] == error_type]
    return named[-1] if error_type and named else lines[-1]


def answered_call(call: ProgramCall, result: ToolResult, manifest: Manifest) -> ToolCall:
    """The record of a program that ran."""
    return ToolCall(
        raw=call.raw,
        status=_CALL_STATUS[result.status],
        code=call.code,
        stdin=call.stdin,
        response=response_text(result, manifest),
        error_type=result.error_type,
    )


def refused_call(call: MalformedCall) -> ToolCall:
    """The record of a call that could not be run."""
    return ToolCall(
        raw=call.raw,
        status=CallStatus.MALFORMED,
        response=f"Error: {call.message}",
        error_type=call.kind.value,
    )
