"""Runs in time: `evolve`, and `Run`, the object of which it takes the steps.

A call uses these modules and folders in this order:

1. `run`: when a `Run` is made, everything is checked: `start` (problem, method, initial state or
   checkpoint, times of the steps), `observation`, `checkpoints`, and, by a few products with the
   operator, `operator_checks` (linearity, stability). With `adapt` the grid of the initial state is
   chosen before these.
2. `stepping`: the steps. It gets the next one from `steps.step_control`, computes it, asks
   `guards` whether the run has become unstable, and looks for events inside the step by
   `steps.dense_output`.
3. `run` again, after each step: `checkpoints`, hooks, records in the `history`;
   `observation.progress` displays how far the run is. At some steps `adapt` asks the problem
   whether its grid is still the right one; the run goes on with another, or repeats some steps.
4. `result`: the return value of the run, and the state that hooks get.
"""
