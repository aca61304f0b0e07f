#!/usr/bin/env python3
"""Reads the event files of a run with TensorBoard's own code and lists the scalars in them.

    python/check_tensorboard.py DIR

One line per tag: name, number of points, first and last step, last value. Exit status: 0 when there is at least one
scalar, 1 when there is none or DIR cannot be read, 2 for wrong usage, 77 when the tensorboard package is not installed.
"""

import argparse
import logging
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", metavar="DIR", help="the folder with the events.out.tfevents.* files")
    folder = parser.parse_args().dir
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError as error:
        print(f"skipped: the tensorboard package is not installed ({error}); try: pip install tensorboard",
              file=sys.stderr)
        return 77
    if not os.path.isdir(folder):
        print(f"{folder} is not a folder", file=sys.stderr)
        return 1

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    keep_all_points = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance=keep_all_points)
    accumulator.Reload()
    tags = accumulator.Tags()[event_accumulator.SCALARS]
    for tag in sorted(tags):
        points = accumulator.Scalars(tag)
        print(f"{tag}  {len(points)} points  steps {points[0].step}..{points[-1].step}  last {points[-1].value:g}")
    if not tags:
        print(f"TensorBoard finds no scalars in {folder}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
