"""The size of the Tracker's storage is the paper's."""

from hw.config import preset
from hw.tracker.storage import entry_layout


def test_entry_is_the_papers():
    """256 sets of 8 ways of 76 bits, 19 KB (section 4.2.1)."""
    config = preset("paper")
    assert (config.tracker_sets, config.tracker_ways) == (256, 8)
    assert entry_layout(config).size == 76
    assert config.tracker_sets * config.tracker_ways * entry_layout(config).size // 8 == 19_456
