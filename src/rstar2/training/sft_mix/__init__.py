"""The data of the non-reasoning cold start: sets of others in the house's template.

The mix of the paper (section 4.1): function calling, instruction following and chat, with
no mathematics, so that it teaches format and not solving.
"""

from rstar2.training.sft_mix.build import build_mix, check_out
from rstar2.training.sft_mix.candidates import convert
from rstar2.training.sft_mix.decontamination import Decontamination
from rstar2.training.sft_mix.drawing import OnProgress
from rstar2.training.sft_mix.messages import (
    Call,
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    from_json,
    to_json,
)
from rstar2.training.sft_mix.openai_rewriter import OpenAIRewriter, RewriteError
from rstar2.training.sft_mix.rendering import encode_conversation, rendered_messages
from rstar2.training.sft_mix.report import MixReport, SourceReport
from rstar2.training.sft_mix.rewriting import Rewrite, Rewriter, RewriteStatus, RewriteTask, Usage
from rstar2.training.sft_mix.spec import PAPER_MIX, Format, MixError, MixSpec, Rewriting, SourceSpec

__all__ = [
    "PAPER_MIX",
    "Call",
    "Conversation",
    "Decontamination",
    "Format",
    "Message",
    "MixError",
    "MixReport",
    "MixSpec",
    "OnProgress",
    "OpenAIRewriter",
    "Refusal",
    "Refused",
    "Rewrite",
    "RewriteError",
    "RewriteStatus",
    "RewriteTask",
    "Rewriter",
    "Rewriting",
    "Role",
    "SourceReport",
    "SourceSpec",
    "Usage",
    "build_mix",
    "check_out",
    "convert",
    "encode_conversation",
    "from_json",
    "rendered_messages",
    "to_json",
]
