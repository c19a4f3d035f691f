"""Exception types of batchkron, in addition to Python's built-in ones."""


class BackendUnavailableError(RuntimeError):
    """The software or hardware of a backend is missing; the text says what to install."""


class ContextLostError(RuntimeError):
    """A device failed: no array of this process on it can be used any more."""


class ProblemFileError(ValueError):
    """A file is damaged or not a valid batchkron file; the text names the offending dataset."""
