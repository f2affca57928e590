"""Sizes of a channel's memory controller."""

from dataclasses import dataclass

from ..dram_timing import DramParameters
from ..message_parameters import BackingStoreParameters, ChannelParameters
from ..parameters import between, one_of


@dataclass(frozen=True)
class ControllerParameters(DramParameters, ChannelParameters, BackingStoreParameters):
    """Of one of `channels` memory controllers: depths in requests, of its queues and of what it keeps room for."""

    compute_queue_depth: int = between(16, 1, 1024)
    communication_queue_depth: int = between(16, 1, 1024)
    dram_queue_depth: int = one_of(64, 1, 2, 4, 8, 16, 32, 64)
    response_depth: int = between(32, 1, 1024)
    commit_queue_depth: int = between(64, 1, 1024)
