"""Exception types that batchkron raises beside the built-in ones."""


class BackendUnavailableError(RuntimeError):
    """A device was asked for whose software is not installed; the text says what to install."""


class ContextLostError(RuntimeError):
    """A device failed, and with it went everything that this process held there."""


class ProblemFileError(ValueError):
    """A file is not a sound file of batchkron's family; the text names the offending dataset."""
