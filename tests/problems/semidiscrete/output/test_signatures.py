"""What help and completion show of plot and to_xarray: the options of the output, not **options."""

import inspect

import pytest

from batchkron.problems import LinearProblem, Problem
from batchkron.problems.linear.output import LinearOutput
from batchkron.problems.semidiscrete.output.output import Output
from batchkron.solvers import Result


def options(method):
    """The parameters of a method by name, with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


@pytest.mark.parametrize(
    ("problem", "output", "name"),
    [
        (Problem, Output, "plot"),
        (Problem, Output, "to_xarray"),
        (LinearProblem, LinearOutput, "plot"),
        (LinearProblem, LinearOutput, "picture"),
    ],
)
def test_options_of_problems_are_those_of_their_output(problem, output, name):
    assert options(getattr(problem, name)) == options(getattr(output, name))


@pytest.mark.parametrize("name", ["plot", "to_xarray"])
def test_options_of_results_have_those_of_problems(name):
    ours, theirs = options(getattr(Result, name)), options(getattr(Problem, name))
    assert theirs.keys() - {"u", "t"} <= ours.keys()
