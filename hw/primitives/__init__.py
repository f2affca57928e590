"""Parts that several blocks use and that know nothing of T3."""
