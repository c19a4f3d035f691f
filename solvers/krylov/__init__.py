"""Krylov methods, one file each, and what they share.

`systems` says what is solved and what comes back, `vectors` has the vectors and the passes over
them, `iteration` what the methods for many systems share. `block` has methods of their own.
"""
