"""The basis along an axis: Gauss points, multiwavelets, projection onto them, their values."""
