"""The command's own messages, read whole: what was expected, what came, what to do."""

import pytest

from batchkron.problems import make, save_problem

REFUSALS = {
    "converge c2.h5": (
        "c2.h5 is a file, whose level is fixed; expected a name of the gallery, see 'batchkron "
        "list'."
    ),
    "converge continuity-1d --levels 3": (
        "Invalid value for '--levels': '3' is no range of levels; expected two ascending levels or "
        "more, such as 3:7 or 2,4,6."
    ),
    "run d.h5 --stepper rk4": (
        "rk4 is explicit, and the step of diffusion-1d, 0.04167, is one for crank-nicolson; give a "
        "smaller one with --dt."
    ),
    "run c2.h5 --checkpoint letter.h5 --force": (
        "checkpoints are to go to letter.h5, but letter.h5 exists and is no HDF5 file, which "
        "checkpoints would replace; move it away or choose another name for the checkpoints."
    ),
    "info no.h5": "no.h5 does not exist; expected a file of batchkron, or a name of the gallery.",
    "info landau-1x1": (
        "landau-1x1 does not exist; expected a file of batchkron, or a name of the gallery. Did "
        "you mean landau-1x1v or landau-1x3v or landau-1x2v?"
    ),
    "make continuity-1d -o -": (
        "the problem is to go to -, which stands for standard output in other programs; files of "
        "batchkron are not written there. Give a file name."
    ),
    "run continuity-1d -o -": (
        "the result is to go to -, which stands for standard output in other programs; files of "
        "batchkron are not written there. Give a file name."
    ),
    "run no.h5 --plot-every 3": (
        "--plot-every is for pictures; name a file by --plot or --movie, too."
    ),
    "run no.h5 --checkpoint -": (
        "the checkpoint is to go to -, which stands for standard output in other programs; files "
        "of batchkron are not written there. Give a file name."
    ),
    "fit no.h5 --plot -": (
        "the plot is to go to -, which stands for standard output in other programs; files of "
        "batchkron are not written there. Give a file name."
    ),
    "rnu c2.h5": "there is no command 'rnu'. Did you mean run?",
    "everything": (
        "there is no command 'everything'. Expected one of list, make, run, fit, converge, info, "
        "check, validate, warmup, tune."
    ),
    "make continuity-1d -o no/a.h5": (
        "the problem is to go to no/a.h5, but the folder {folder}/no does not exist; create it "
        "first."
    ),
    "make continuity-1d -o sub": (
        "the problem is to go to sub, which is a folder; give a file name."
    ),
    "run c2.h5 -o .": "the result is to go to ., which is a folder; give a file name.",
    "run c2.h5 --checkpoint /": (
        "the checkpoint is to go to /, which is a folder; give a file name."
    ),
    f"run c2.h5 -o {'x' * 256}": (
        f"the result is to go to a file whose name has more than 255 bytes, {'x' * 40}…; give a "
        "shorter one."
    ),
    f"run c2.h5 --checkpoint {'x' * 250}": (
        "the checkpoint before the last one is to go to a file whose name has more than 255 "
        f"bytes, {'x' * 40}…; give a shorter one."
    ),
    "make continuity-1d -o /dev/null": (
        "the problem is to go to /dev/null, which is not a regular file; choose another."
    ),
    "make continuity-1d -o c2.h5": (
        "c2.h5 exists, where the problem is to go; pass --force to replace it."
    ),
    "run c2.h5 -o c2.h5": ("the result would go to c2.h5, which is the problem; choose another."),
    "run c2.h5 --until nan": (
        "Invalid value for '--until': nan is out of range; expected a finite number."
    ),
    "run c2.h5 --dt 0": (
        "Invalid value for '--dt': 0.0 is out of range; expected a finite number > 0."
    ),
    "run continuity-1d --level x": (
        "Invalid value for '--level': 'x' is not a level; expected a whole number such as 6, or "
        "one per axis such as 6,5."
    ),
    "run c2.h5 --checkpoint-every 1day": (
        "Invalid value for '--checkpoint-every': '1day' is not an interval; expected a number of "
        "steps such as 500, or a time with its unit such as 30s, 10min or 1h."
    ),
    "run nothing": (
        "'nothing' is neither a file nor a name of the gallery; see 'batchkron list' for the names."
    ),
    "run sub": "sub is a folder; expected a problem file or a name of the gallery.",
    "run c2.h5 --level 4": (
        "--level is for names of the gallery; c2.h5 is a file, whose grid and degree are fixed. "
        "Make another file with 'batchkron make'."
    ),
    "run c2.h5 --resume c2.h5": (
        "c2.h5, the checkpoint to resume from, is the problem itself; expected a file that an "
        "earlier run has left, such as NAME.checkpoint.h5."
    ),
    "run c2.h5 --resume no.h5": (
        "no.h5, the checkpoint to resume from, does not exist; expected a file that an earlier run "
        "has left, such as NAME.checkpoint.h5."
    ),
    "run c2.h5 --checkpoint letter.h5": (
        "letter.h5 exists, perhaps of a run that was stopped; go on from it with --resume "
        "letter.h5, or pass --force to replace it."
    ),
    "run c2.h5 --checkpoint a.h5 -o a.h5.previous": (
        "the result would go to a.h5.previous, where the checkpoint before the one in a.h5 is "
        "kept; choose another."
    ),
    "run c2.h5 --until -1": ("until is -1.0; expected at least the problem's first time t0 = 0.0."),
}


@pytest.fixture
def files(folder, problem_file):
    """What the command lines name."""
    save_problem(folder / "d.h5", make("diffusion-1d", level=2, degree=1))
    (folder / "letter.h5").write_text("a letter\n")
    (folder / "sub").mkdir()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("line", REFUSALS)
def test_refusals(refused, folder, line):
    error = refused(*line.split())
    assert error == f"batchkron: {REFUSALS[line].format(folder=folder)}\n"


@pytest.mark.usefixtures("files")
def test_formats_of_pictures(refused):
    error = refused("run", "c2.h5", "--plot", "a.txt")
    assert error.startswith(
        "batchkron: the plot is to go to a.txt; expected a name that ends in .png, or in one of ."
    )
