"""Checks of functions on the device of fake_cupy, each for a process of its own.

The package puts that CuPy in its place, so that its modules can import what needs one.
"""

from fake_cupy.installation import install

DEVICE = install()
