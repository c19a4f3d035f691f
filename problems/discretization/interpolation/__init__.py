"""Functions of all axes at points: values there, and coefficients of what interpolates them."""
