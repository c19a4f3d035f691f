"""What Hypothesis draws for planners of device kernels: dtypes, and devices large and small."""

import numpy as np
from hypothesis import strategies as st

from batchkron.backends.cuda.runtime.hardware import DeviceLimits

dtypes = st.sampled_from([np.dtype(code) for code in "fdFD"])
limits = st.builds(
    DeviceLimits,
    shared_bytes=st.sampled_from([1 << 10, 48 << 10, 163 << 10, 227 << 10]),
    multiprocessors=st.sampled_from([1, 16, 132]),
)
