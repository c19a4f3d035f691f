"""Runs in time: plan, steps, step-size control, checkpoints, events."""
