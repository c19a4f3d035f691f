"""Pictures, drawn by matplotlib."""

import itertools
import math
from dataclasses import dataclass

WHISKERS = (5, 95)  # percentiles, as in the paper
MAX_BOXES = 16


def figures():
    """matplotlib without a display, and without dates in its files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchkron", "font.size": 9})
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters are letters
    from matplotlib import pyplot

    return pyplot


def save_figure(figure, path):
    """Write a picture; the same data give the same file."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    figures().close(figure)


@dataclass(frozen=True)
class Roof:
    """What a chip can do: bytes, and flops per second, in one unit for both."""

    bandwidth: float
    peak: float

    def at(self, intensity):
        """Return the most that a product can reach, of its flops per byte."""
        return min(self.peak, self.bandwidth * intensity)

    @property
    def ridge(self):
        """Flops per byte from which on arithmetic is what bounds."""
        return self.peak / self.bandwidth

    def draw(self, axis, first, last, **style):
        across = sorted({first, min(max(first, self.ridge), last), last})
        axis.plot(across, [self.at(one) for one in across], **style)


def label_marks(axis, marks, **style):
    """Write a name beside each mark, over as few others as can be; return the names' boxes."""
    from matplotlib.transforms import Bbox

    places = [(one, axis.transData.transform(one[:2])) for one in marks]
    taken = [Bbox.from_bounds(*(at - 5), 10, 10) for _, at in places]
    frame, labels = axis.bbox, []
    for (x, y, name, color), at in places:
        how = {"textcoords": "offset pixels", "color": color, **style}
        text = axis.annotate(name, (x, y), (0, 0), **how)
        extent = text.get_window_extent()
        best = math.inf
        for distance, angle in itertools.product(range(9, 90, 7), range(0, 360, 15)):
            dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            left = at[0] + distance * dx + (dx - 1) * extent.width / 2
            low = at[1] + distance * dy - extent.height / 2
            box = Bbox.from_bounds(left, low, extent.width, extent.height)
            is_inside = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0
            covered = box.count_overlaps(taken) + 9 * (not (is_inside and box.y1 < frame.y1))
            if covered < best:
                best, chosen = covered, box
            if not covered:
                break
        text.set_position((chosen.x0 - at[0], chosen.y0 - at[1]))
        taken.append(chosen)
        labels.append(chosen)
    return labels


def grouped(values, most=MAX_BOXES):
    """Pairs of a label and all values of it; close keys are joined until there are few boxes."""
    keys = sorted(values)
    groups = [keys[k * len(keys) // most : (k + 1) * len(keys) // most] for k in range(most)]
    if len(keys) <= most:
        groups = [[key] for key in keys]
    found = []
    for own in groups:
        if own:
            label = f"{own[0]:.3g}" if len(own) == 1 else f"{own[0]:.2g}-{own[-1]:.2g}"
            found.append((label, [one for key in own for one in values[key]]))
    return found


def draw_boxes(axis, found, level=None, rotation=70):
    """Draw a box for each pair of a label and its values; ``level``: a dashed line."""
    axis.boxplot(
        [own for _, own in found],
        tick_labels=[f"{label}\n{len(own)}" for label, own in found],
        whis=WHISKERS,
        showfliers=False,
    )
    axis.tick_params(axis="x", labelrotation=rotation, labelsize=7)
    if level is not None:
        axis.axhline(level, linestyle="--", linewidth=0.8, color="0.4")
    axis.grid(axis="y", linewidth=0.4)


def logarithmic(axis):
    """Let the vertical axis be logarithmic, with the labels 1, 2, 5, 10, … as plain numbers."""
    from matplotlib import ticker

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def boxes(path, panels, across, down, level=None):
    """Draw boxes in each panel: by its title, the values of each number on the horizontal axis."""
    pyplot = figures()
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (7.4 * columns, 3.6 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, values) in zip(axes.flat, panels.items(), strict=False):
        draw_boxes(axis, grouped(values), level)
        axis.set_title(title)
        axis.set_xlabel(f"{across}, and how many patterns")
    for row in axes:
        row[0].set_ylabel(down)
    save_figure(figure, path)
