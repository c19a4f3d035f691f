"""Exception types of batchkron, in addition to Python's built-in ones."""


class BackendUnavailableError(RuntimeError):
    """The software or hardware of a backend is missing; the text says what to install."""


class ContextLostError(RuntimeError):
    """A device failed: no array of this process on it can be used any more."""


class ProblemFileError(ValueError):
    """A file is damaged or not a valid batchkron file; the text names the offending dataset."""


class NotPhysicalError(ArithmeticError):
    """A state has a density, temperature or other divisor that is not positive.

    Attributes
    ----------
    quantity, axis : str
        What is not positive, and the axis along which it depends on the place.
    place, time, value : float
        The coordinate and time at which it is not positive, and its value there.
    """

    def __init__(self, quantity: str, axis: str, place: float, time: float, value: float) -> None:
        super().__init__(quantity, axis, place, time, value)
        self.quantity, self.axis, self.place = quantity, axis, place
        self.time, self.value = time, value

    def __str__(self) -> str:
        return (
            f"{self.quantity} is {self.value:.6g} at {self.axis} = {self.place:.6g}, "
            f"t = {self.time:.6g}, and a term divides by it or takes its root; expected positive "
            "values. Take a finer grid or a smaller step, or look at the initial state"
        )


class PointValueError(NotPhysicalError):
    """A function of the state, or of places, is not finite at a point; the text says where."""

    def __init__(self, text: str) -> None:
        ArithmeticError.__init__(self, text)
        self.text = text

    def __str__(self) -> str:
        return self.text
