#!/usr/bin/env python3
"""The constants of docs/scale.md, measured here, and what they predict beside what is measured: bench/scale.py --bin build/bin

Runs ingest_tree (real Roster, Round and Tally) in CPU time, so that a busy machine disturbs little. Constants come from
the sizes of FIT; CHECK has others, which are predicted from them.
"""

import argparse
import math
import os
import re
import statistics
import subprocess

# clients, dimension, regions, leaves of a region
FIT = {"small": (20000, 30, 4, 8), "wide": (4000, 10000, 4, 8), "few": (100000, 30, 4, 8), "many": (400000, 30, 4, 8)}
CHECK = [(20000, 300, 4, 8), (4000, 3000, 4, 8), (200000, 30, 10, 20)]
LEVEL = re.compile(r"^(\w+) +(\d+) nodes +(\d+) reports +([\d.]+) us and +([\d.]+) bytes", re.M)


def measure(program, sizes, repeats):
    """{level: (reports, us a report, bytes a report)} and the memory of the root's process in MB: medians."""
    texts = [subprocess.run([program, *map(str, sizes)], check=True, text=True, capture_output=True).stdout
             for _ in range(repeats)]
    levels = [{m[1]: (int(m[3]), float(m[4]), float(m[5])) for m in LEVEL.finditer(text)} for text in texts]
    memory = [float(re.search(r"(\d+) MB with it", text)[1]) for text in texts]
    return ({name: tuple(statistics.median(one[name][i] for one in levels) for i in range(3)) for name in levels[0]},
            statistics.median(memory))


class Model:
    """CPU time of reports at one node, in microseconds; memory in bytes."""

    def __init__(self, program, repeats):
        runs = {name: measure(program, sizes, repeats) for name, sizes in FIT.items()}
        small, wide = runs["small"][0], runs["wide"][0]
        d0, d1 = FIT["small"][1], FIT["wide"][1]
        self.coordinate = (wide["leaves"][1] - small["leaves"][1]) / (d1 - d0)
        self.report = small["leaves"][1] - self.coordinate * d0
        self.far = small["flat"][1] - small["leaves"][1]
        # The time for a name grows with the clients that the node knows, as they leave the cache.
        regions = FIT["small"][2]
        self.near_clients, self.far_clients = FIT["small"][0] / regions, FIT["many"][0]
        self.near_name = small["regions"][1] / (self.near_clients / FIT["small"][3])
        self.far_name = runs["many"][0]["root"][1] / (self.far_clients / FIT["many"][2])
        self.client_bytes = (runs["many"][1] - runs["few"][1]) * 2**20 / (FIT["many"][0] - FIT["few"][0])

    def single(self, d, known=0):
        """One client's report, at a node that knows so many clients."""
        return self.report + self.coordinate * d + (self.far if known > self.near_clients else 0)

    def name(self, known):
        share = math.log(max(known / self.near_clients, 1)) / math.log(self.far_clients / self.near_clients)
        return self.near_name + share * (self.far_name - self.near_name)

    def merged(self, names, d, known, groups=4):
        """A sum of `names` clients: names to admit, and integers to add, which cost about a coordinate each."""
        return self.name(known) * names + self.coordinate * d * groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    program = os.path.join(options.bin, "ingest_tree")
    model = Model(program, options.repeats)
    print(f"a client's report        {model.report:8.2f} us of a core")
    print(f"each coordinate of it    {1e3 * model.coordinate:8.2f} ns")
    print(f"the same, far more known {model.report + model.far:8.2f} us")
    print(f"each name in a sum       {model.near_name:8.2f} us at a node that knows {model.near_clients:.0f} clients, "
          f"{model.far_name:.2f} us at one that knows {model.far_clients}")
    print(f"memory of a client       {model.client_bytes:8.0f} bytes where it is registered and sampled\n")
    print("clients  dimension   level      predicted us a report   measured   measured / predicted")
    for sizes in CHECK:
        clients, d, regions, leaves = sizes
        levels, _ = measure(program, sizes, options.repeats)
        of_region, of_leaf = clients / regions, clients / regions / leaves
        for name, predicted in (("leaves", model.single(d, of_leaf)), ("flat", model.single(d, clients)),
                                ("regions", model.merged(of_leaf, d, of_region)),
                                ("root", model.merged(of_region, d, clients))):
            us = levels[name][1]
            print(f"{clients:7} {d:10}   {name:8} {predicted:23.2f} {us:10.2f} {us / predicted:22.2f}")
    print("\n10^6 sampled clients, d = 10^4, in one round")
    flat = 1e6 * model.single(1e4, 1e6) / 1e6
    print(f"  one server:              {flat:6.1f} s of a core")
    for leaves, regions in ((100, 10), (1000, 10), (1000, 32)):
        steps = (1e6 / leaves * model.single(1e4, 1e6 / leaves),
                 leaves / regions * model.merged(1e6 / leaves, 1e4, 1e6 / regions),
                 regions * model.merged(1e6 / regions, 1e4, 1e6))
        print(f"  {leaves:4} leaves, {regions:2} regions: {sum(steps) / 1e6:6.2f} s one after the other "
              f"(leaf {steps[0] / 1e6:.2f}, region {steps[1] / 1e6:.2f}, root {steps[2] / 1e6:.2f})")
    print(f"10^8 registered: {1e8 * model.client_bytes / 2**30:.0f} GB at most at a node that knows all by name")


if __name__ == "__main__":
    main()
