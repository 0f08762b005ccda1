"""What a run asks of machines and how long it takes; these sections decide no number."""

from pydantic import Field

from rstar2.training.spec import Spec


class ResourcesSpec(Spec):
    """What one run asks a scheduler for.

    Attributes:
        nodes: Machines.
        gpus_per_node: Accelerators of each; 0 for none.
        cpus_per_node: Cores of each.
        memory_gib_per_node: Main memory of each, in GiB.
        hours: Wall time after which the scheduler ends it; it goes on in the next job.
        image: Container image; none where the environment is installed on the nodes.
    """

    nodes: int = Field(gt=0)
    gpus_per_node: int = Field(ge=0)
    cpus_per_node: int = Field(gt=0)
    memory_gib_per_node: int = Field(gt=0)
    hours: float = Field(gt=0)
    image: str | None

    @property
    def gpus(self) -> int:
        """Accelerators of all nodes."""
        return self.nodes * self.gpus_per_node


class CostSpec(Spec):
    """Wall minutes on these resources, as expected before anything was measured.

    Attributes:
        sft: Pretraining and SFT.
        rl_step: One RL step.
        mining: Mining of the hard problems.
        evaluation: One evaluation.
    """

    sft: float = Field(ge=0)
    rl_step: float = Field(ge=0)
    mining: float = Field(ge=0)
    evaluation: float = Field(ge=0)
