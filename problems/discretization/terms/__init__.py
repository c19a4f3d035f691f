"""From the terms of a PDE to those of its discretization, and its manufactured sources."""
