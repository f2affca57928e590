"""The one error a user of the command line can cause."""


class UsageError(ValueError):
    """Bad input: the message is one sentence that names what is wrong and what is allowed."""
