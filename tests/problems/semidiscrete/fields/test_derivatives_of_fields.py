"""div and grad along the axis of their own field: references, conservation, order, runs."""

import warnings
from functools import partial

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss, legval

