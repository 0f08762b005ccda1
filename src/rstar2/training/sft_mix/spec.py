"""What the mix is made of: sets, how many of each, and what is rewritten (paper, section 4.1)."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rstar2.errors import UserError


class MixError(UserError):
    """The mix cannot be made of what was given."""


class Format(StrEnum):
    """The schema of a set; each has its converter."""

    TOOLACE = "toolace"
    APIGEN = "apigen"
    GLAIVE = "glaive"
    MAGICODER = "magicoder"
    TULU = "tulu"
    NEMOTRON = "nemotron"


class Rewriting(StrEnum):
    """What the paper had o4-mini write anew."""

    NONE = "none"
    RESPONSE = "response"
    """The last answer."""
    PROMPT = "prompt"
    """The last question."""


class SourceSpec(BaseModel):
    """One set of the mix.

    Attributes:
        name: Names it in inputs, reports and the output.
        dataset: Where it is published.
        licence: Under which licence, as its card says.
        format: Its schema.
        target: Conversations that the mix takes of it.
        rewriting: What a rewriter rewrites, if one is given.
        faults: What is known to be wrong with it, one sentence each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    dataset: str
    licence: str
    format: Format
    target: int = Field(gt=0)
    rewriting: Rewriting = Rewriting.NONE
    faults: tuple[str, ...] = ()


class MixSpec(BaseModel):
    """The whole mix.

    Attributes:
        sources: The sets; where two hold the same prompts, the earlier one keeps them.
        seed: Decides which conversations are taken, and their order.
        max_tokens: Longer conversations are left out, in tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: tuple[SourceSpec, ...] = Field(min_length=1)
    seed: int = 0
    max_tokens: int = Field(default=8192, gt=0)

    @model_validator(mode="after")
    def _names_differ(self) -> "MixSpec":
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"two sources share a name: {names}")
        return self


PAPER_MIX = MixSpec(
    sources=(
        SourceSpec(
            name="toolace",
            dataset="Team-ACE/ToolACE",
            licence="Apache-2.0",
            format=Format.TOOLACE,
            target=11_000,
            faults=(
                "Calls are written like Python, with names and arguments that are not Python's.",
            ),
        ),
        SourceSpec(
            name="apigen-mt",
            dataset="Salesforce/APIGen-MT-5k",
            licence="CC-BY-NC-4.0",
            format=Format.APIGEN,
            target=5_000,
            faults=("Its licence forbids commercial use.",),
        ),
        SourceSpec(
            name="glaive",
            dataset="glaiveai/glaive-function-calling-v2",
            licence="Apache-2.0",
            format=Format.GLAIVE,
            target=101_000,
            faults=("Arguments of calls are JSON within quotes that are often broken.",),
        ),
        SourceSpec(
            name="magicoder",
            dataset="ise-uiuc/Magicoder-OSS-Instruct-75K, ise-uiuc/Magicoder-Evol-Instruct-110K",
            licence="MIT, Apache-2.0",
            format=Format.MAGICODER,
            target=48_000,
            faults=(
                "OSS-Instruct has fewer Python records than the paper took, so both sets go in.",
                "The programs were never run here: a conversation ends at its call.",
            ),
        ),
        SourceSpec(
            name="tulu-3-if",
            dataset="allenai/tulu-3-sft-personas-instruction-following",
            licence="ODC-BY-1.0",
            format=Format.TULU,
            target=30_000,
            rewriting=Rewriting.RESPONSE,
            faults=("It has some twenty records less than the paper's 30,000.",),
        ),
        SourceSpec(
            name="nemotron-chat",
            dataset="nvidia/Llama-Nemotron-Post-Training-Dataset, SFT/chat",
            licence="CC-BY-4.0",
            format=Format.NEMOTRON,
            target=27_000,
            rewriting=Rewriting.PROMPT,
            faults=("Licences differ from record to record and are not carried over.",),
        ),
    )
)
"""The counts of section 4.1: 165K function calls, 30K instruction following, 27K chat.

The paper gives no limit of length; its responses after the cold start have 1K tokens in
the mean.
"""
