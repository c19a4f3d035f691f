"""Runs in time: `evolve`.

A call uses these modules and folders in this order:

1. `evolve`: the function itself. `plan` checks everything before the run starts: `start` (problem,
   method, initial state or checkpoint, times of the steps), `observation`, `checkpoints`, and, by a
   few products with the operator, `operator_checks` (linearity, stability). With `adapt` the grid
   of the initial state is chosen before these. `on_ranks` says what runs with a state spread over
   ranks refuse.
2. `run`: the loop. It gets the next step from `steps.step_control`, computes it with
   `steps.trial_steps`, asks `guards` whether it has become unstable, and looks for events inside
   the step by `steps.dense_output`. At some steps `adapt` asks the problem whether its grid is
   still the right one; the run goes on with another, or back to the last change.
3. `checkpoints` is opened before the first step, notified of each step, and closed after the last.
   `history` holds the records of the run; `observation.progress` displays how far it is.
4. `result`: the return value of the run, and the state that its callback gets.
"""
