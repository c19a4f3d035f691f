"""Runs in time: `evolve`.

One call reads these modules in this order:

1. `evolve`: the function itself. `plan` lists all that is checked before anything starts:
   `integration` (`arguments`, `time_grid`, `resume`, `provenance`), `observers` (`events`),
   `checkpoints`, and by a few products `linearity` and `stability` (`spectrum`).
2. `run`: the loop. It asks `step_control` for a step, tries it with `trial_steps`, asks the guards
   (`guard`: `growth_bound`, `step_doubling`) and looks for events in it by `dense_output`.
3. `checkpoints` is opened before the first step, told of each one, and closed after the last.
   `history` holds the records that go with it, and `progress` shows how far the run is.
4. `result`: what the run returns, and what its callback sees.
"""
