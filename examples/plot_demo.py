# SPDX-License-Identifier: Apache-2.0
"""Draws what `trimul demo` wrote: for each <name>.safetensors and <name>.json of a directory, <name>.png beside them.

Four maps over residue pairs: CB-CB distance, norm of the pair representation before and after the updates, and their
difference.

    python examples/plot_demo.py build/demo [name ...]
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402


def clipped_range(values, low=1.0, high=99.0):
    """A colour range that a few extreme cells do not stretch."""
    finite = values[np.isfinite(values)]
    return np.percentile(finite, low), np.percentile(finite, high)


def draw_map(figure, axes, values, title, label, boundaries, line="white", extend="neither", **colours):
    n = values.shape[0]
    image = axes.imshow(values, origin="upper", extent=(0.5, n + 0.5, n + 0.5, 0.5), **colours)
    axes.set_title(title, fontsize=12)
    axes.set_xlabel("residue index j")
    axes.set_ylabel("residue index i")
    for boundary in boundaries:
        axes.axhline(boundary, color=line, linewidth=0.8)
        axes.axvline(boundary, color=line, linewidth=0.8)
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, extend=extend).set_label(label)


def draw(stem):
    maps = load_file(stem.with_suffix(".safetensors"))
    summary = json.loads(stem.with_suffix(".json").read_text())
    before, after = maps["pair_norm_before"], maps["pair_norm_after"]
    unmasked = maps["mask"] != 0
    before, after = np.where(unmasked, before, np.nan), np.where(unmasked, after, np.nan)
    difference = after - before
    centre = np.nanmedian(difference)
    reach = np.nanpercentile(np.abs(difference - centre), 99)
    boundaries = np.flatnonzero(np.diff(maps["chain_index"])) + 1.5

    figure, axes = plt.subplots(2, 2, figsize=(12, 10.6), layout="constrained")
    chains = f", {summary['chains']} chains" if summary["chains"] > 1 else ""
    figure.suptitle(
        f"{summary['title']}: {summary['residues']} residues{chains}\n"
        f"{summary['blocks']} blocks of z += update_outgoing(z), z += update_incoming(z), seeded weights, "
        f"C_z = {summary['c_z']}, {summary['dtype']}",
        fontsize=13,
    )
    draw_map(figure, axes[0, 0], maps["distance"], "Distance map", "CB-CB distance (Å)", boundaries, cmap="viridis_r", vmin=0)
    for place, values, title in [(axes[0, 1], before, "Pair norm before"), (axes[1, 0], after, "Pair norm after")]:
        low, high = clipped_range(values)
        draw_map(
            figure, place, values, title, "norm of z[i, j] (no unit)", boundaries, extend="both", cmap="magma", vmin=low, vmax=high
        )
    draw_map(
        figure, axes[1, 1], difference, "Difference, after minus before", f"change of the norm (no unit; white: the median, {centre:.1f})",
        boundaries, line="black", extend="both", cmap="RdBu_r", vmin=centre - reach, vmax=centre + reach,
    )
    figure.savefig(stem.with_suffix(".png"), dpi=110)
    plt.close(figure)


def main(arguments):
    directory = pathlib.Path(arguments[0])
    stems = [directory / name for name in arguments[1:]] or [path.with_suffix("") for path in sorted(directory.glob("*.safetensors"))]
    for stem in stems:
        draw(stem)
        print(f"picture: {stem.with_suffix('.png')}")


if __name__ == "__main__":
    main(sys.argv[1:])
