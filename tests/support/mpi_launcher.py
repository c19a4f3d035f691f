"""mpiexec, for tests that start ranks."""

import os
import shutil
import sys
from pathlib import Path

# /usr/bin before /bin, which may be the same: Open MPI takes the folder above mpiexec's for the one
# that it is installed in, and refuses the root.
_FOLDERS = str(Path(sys.executable).parent), "/usr/bin", os.defpath

MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join(_FOLDERS))
"""Its path, of the environment or of the system; None if there is none."""
