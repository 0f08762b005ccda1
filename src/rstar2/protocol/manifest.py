"""What the model is told: system text, tool, question frame. Data of the preset.

``PAPER`` is Figure 3 of the paper with its JSON closed and the answer primed with
``<reason>``, as every trace of the paper begins. ``LAPTOP`` says the same in a few
words, since Figure 3 alone is longer than a whole laptop trace.
"""

import json
from dataclasses import dataclass, replace

REASON_OPEN, REASON_CLOSE = "<reason>", "</reason>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
TURN_OPEN, TURN_CLOSE = "<|im_start|>", "<|im_end|>"

TAGS = (
    REASON_OPEN,
    REASON_CLOSE,
    CALL_OPEN,
    CALL_CLOSE,
    RESPONSE_OPEN,
    RESPONSE_CLOSE,
    ANSWER_OPEN,
    ANSWER_CLOSE,
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The texts of a conversation that the model does not write.

    Attributes:
        system: The system turn; ``{tools}`` stands for the tool's JSON schema.
        question: The user turn; ``{question}`` stands for the problem.
        tool_name: The one tool that calls may name; empty if there is none.
        tool_schema: JSON schema of the tool, rendered where ``{tools}`` stands.
        stdin_required: Whether a call must carry ``input`` (paper: yes, may be empty).
        error_detail: Whether errors show the traceback, or the place of a JSON fault,
            or only the line that names the error.
        prime: Text put before the model's first token of every turn, out of the loss.
    """

    system: str
    question: str
    tool_name: str
    tool_schema: str = ""
    stdin_required: bool = True
    error_detail: bool = True
    prime: str = REASON_OPEN

    def system_text(self) -> str:
        """The system turn with the tool's schema in place."""
        return self.system.replace("{tools}", self.tool_schema)

    def question_text(self, question: str) -> str:
        """The user turn for one problem."""
        return self.question.replace("{question}", question)


_PAPER_TOOL = {
    "type": "function",
    "function": {
        "name": "execute_python_code_with_standard_io",
        "description": (
            "Execute Python code with standard input and capture standard output. This function "
            "takes a Python code string and an input string, provides the input string through "
            "standard input (stdin) to the code, and captures and returns any output produced "
            "through standard output (stdout). If the executed code raises an exception, the error "
            "message will be captured and returned instead."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": (
                        "A string containing Python code to be executed. The code can read from "
                        "standard input using the input() function."
                    ),
                },
                "input": {
                    "type": "string",
                    "description": (
                        "A string that will be provided as standard input to the code when it "
                        "calls input()."
                    ),
                },
            },
            "required": ["code", "input"],
        },
        "return": {
            "type": "string",
            "description": (
                "str: The output produced by the executed code through standard output. If an "
                "error occurs during execution, the error message will be returned."
            ),
        },
    },
}

PAPER = Manifest(
    system=(
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The Assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer. The reasoning process and answer are enclosed within "
        "<reason> </reason> and <answer> </answer> tags, respectively, i.e., <reason> reasoning "
        "process here </reason><answer> answer here </answer>.\n\n"
        "# Tools: You may call one or more functions to assist with the user query. You are "
        "provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>{tools}</tools>\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:"
        '<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>'
    ),
    question=(
        "You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here "
        "</answer>. And your final answer will be extracted automatically by the \\boxed{} tag. "
        "This is the problem: {question} "
    ),
    tool_name="execute_python_code_with_standard_io",
    tool_schema=json.dumps(_PAPER_TOOL),
)

LAPTOP = Manifest(
    system="Solve the problem. You may call python.",
    question="{question}",
    tool_name="python",
    stdin_required=False,
    error_detail=False,
)

LAPTOP_NO_TOOL = replace(LAPTOP, system="Solve the problem.", tool_name="")
"""For reasoning without a tool: a call, should the model write one, names an unknown tool."""

MANIFESTS = {"paper": PAPER, "laptop": LAPTOP, "laptop-no-tool": LAPTOP_NO_TOOL}
