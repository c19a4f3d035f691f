"""Checks before a run by a few products with the operator: is it linear, are steps stable."""
