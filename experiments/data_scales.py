"""Whether the units of the data matter: ten regression problems, half of them with conflict, with all features times
10^-4, 1, 10^4 and 10^6, with columns as tables have them (ages, incomes, flags, parts per billion), and with these after
the remedy that an uncertain verdict names, columns of standard deviation 1.

  experiments/data_scales.py --bin build/bin [--problems 10]

Prints the table of docs/measures.md, section 7. An uncertain verdict must name the remedy; a wrong one ends it with an error."""

import argparse

import numpy as np

from verdict_rule import draw, regression, run, spread

SCALES = (1, 1e-4, 1e4, 1e6)
REMEDY = "--scale standard"
RAW = np.array([40.0, 3e4, 1.0, 1e-6, 150.0, 1e-3])  # of columns, in turn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--problems", type=int, default=10)
    options = parser.parse_args()
    print("| problem | truth at scale 1 | × 10^-4 | × 10^4 | × 10^6 | raw columns | standardised |\n|---|---|---|---|---|---|---|")
    worst = 0
    for i in range(options.problems):
        rng = np.random.default_rng(1000 + i)
        d, k = int(rng.integers(3, 7)), (i % 2) * rng.uniform(0.7, 1.5)
        truth = rng.normal(size=d)
        clients = regression(rng, 20, lambda c: 60, lambda c: spread(rng, d, 0.4, 2.5),
                             lambda c, s: truth + k * (s - 1), lambda c: 0.7)
        data = [draw(rng, c) for c in clients]
        cells, first = [], None
        raw = RAW[np.arange(d) % len(RAW)]
        standard = 1 / np.concatenate([x for x, _ in data]).std(0)
        for scale in SCALES + (raw, standard):
            e = run(options, [(x * scale, y) for x, y in data], "linear_regression { intercept: false }", "UNIFORM", 20)
            first = first or e
            same_step = np.isscalar(scale)  # raw columns have another L, so another step size
            if same_step and e["lost"] is not None:
                worst = max(worst, abs(e["lost"] / first["lost"] - 1), abs(e["sampling_error"] / first["sampling_error"] - 1))
            if e["verdict"] not in (first["verdict"], "uncertain"):
                raise SystemExit(f"problem {i}, scale {scale}: {e['verdict']}, but {first['verdict']} at scale 1")
            if e["verdict"] == "uncertain" and REMEDY not in e["sentence"]:
                raise SystemExit(f"problem {i}, scale {scale}: uncertain without the remedy: {e['sentence']}")
            cells.append(f"{e['verdict']}" + (f" ({100 * e['lost']:.2g} %)" if e["lost"] is not None else ""))
        print(f"| {i} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nlost and sampling error differ by at most {worst:.1e} (relative)")


if __name__ == "__main__":
    main()
