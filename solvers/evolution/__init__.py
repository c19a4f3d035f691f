"""Runs in time: `evolve`.

A call uses these modules in this order:

1. `evolve`: the function itself. `plan` checks everything before the run starts: `integration`
   (with `arguments`, `time_grid`, `resume`, `provenance`), `observers` (`events`), `checkpoints`,
   and, by a few products with the operator, `linearity` and `stability` (`spectrum`). With `adapt`
   the grid of the initial state is chosen before these.
2. `run`: the loop. It gets the next step from `step_control`, computes it with `trial_steps`, asks
   the guards against instability (`guard`: `growth_bound`, `step_doubling`), and looks for events
   inside the step by `dense_output`.
   At some steps `follower` asks the problem whether its grid is still the right one; the run goes
   on with another, or back to the last change.
3. `checkpoints` is opened before the first step, notified of each step, and closed after the last.
   `history` holds the records of the run, and `progress` displays how far it is.
4. `result`: the return value of the run, and the state that its callback gets.
"""
