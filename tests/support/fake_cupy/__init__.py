"""A CuPy whose device is main memory, for processes of their own on machines without a device.

`installation.install` takes the place of CuPy, and of the driver: a launch computes in NumPy what
its kernel would, from the bytes of the kernel's arguments. Only what the functions on device arrays
use is there.
"""
