"""Average drift beside the bounds that theory has for it, on the paper's synthetic data and on its conflict variant: from
what the clients' Hessians differ by (second order), from how far single clients drift (Jensen), and from L alone
(classic). And how the clients' agreement goes over rounds of training.

  experiments/second_order.py --bin build/bin

Prints the tables of docs/measures.md, "Second-order bounds"."""

import argparse
import json
import math
import os
import subprocess
import tempfile

STEPS = (2, 5, 10, 50, 200)
ROUNDS = (1, 2, 5, 10, 20, 50, 100)
CONFIG = f"""seed: 1 durability: RELAXED model {{ linear_regression {{ intercept: false }} }}
phases {{ optimum {{ tolerance: 1e-11 }} }}
phases {{ constants {{ point: OPTIMUM }} }}
phases {{ probe {{ point: OPTIMUM auto_step_size: true steps: {list(STEPS)} }} }}
phases {{ fixed_point {{ auto_step_size: true steps: {list(STEPS)} }} }}
phases {{ train {{ start: INITIAL rounds: {ROUNDS[-1]} local {{ auto_step_size: true steps: 10 }}
                 probe {{ point: CURRENT auto_step_size: true steps: [10] }} probe_at: {list(ROUNDS)} }} }}
"""


def measure(options, folder, gamma):
    leeway = os.path.join(options.bin, "leeway")
    data, run = os.path.join(folder, f"data_{gamma}"), os.path.join(folder, f"run_{gamma}")
    conflict = ["--conflict", str(gamma)] if gamma else []
    subprocess.run([leeway, "data", "synthetic", "--out", data, *conflict], check=True, stdout=subprocess.DEVNULL)
    config = os.path.join(folder, "c.textproto")
    with open(config, "w") as f:
        f.write(CONFIG)
    subprocess.run([leeway, "run", config, "--data", data, "--out", run, "--processes", "1"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    return json.loads(subprocess.check_output([leeway, "show", run, "--json"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shown = {gamma: measure(options, folder, gamma) for gamma in (0, 0.1)}
    print("| data | H | ρ | second order | with β | Jensen | classic | ‖w_H − w*‖ |\n|---|---|---|---|---|---|---|---|")
    for gamma, run in shown.items():
        constants, probe = run["constants"], run["probes"][0]
        spread, largest = constants["mean_hessian_dissimilarity"], constants["hessian_dissimilarity"]
        zeta, eta = math.sqrt(probe["dissimilarity"]), probe["step_size"]
        rest = {f["h"]: f["distance"] for f in run["fixed_points"]}
        for step in probe["steps"]:
            h, rho = step["h"], math.sqrt(step["average_drift_squared"])
            half = eta * (h - 1) / 2
            numbers = (rho, half * spread * zeta, half * largest * zeta, math.sqrt(step["drift_bound"]),
                       math.sqrt(step["classic_bound"]), rest[h])
            if rho > numbers[1]:
                raise SystemExit(f"γ = {gamma}, H = {h}: the drift {rho} exceeds its bound {numbers[1]}")
            print(f"| γ = {gamma} | {h} | " + " | ".join(f"{x:.3g}" for x in numbers) + " |")
        print(f"γ = {gamma}: L = {constants['smoothness']:.3g}, largest L_c = {constants['largest_client_smoothness']:.4g}, β = "
              f"{largest:.3g}, β₂ = {spread:.3g}, ζ = {zeta:.3g}, η = {eta:.3g}")
    print("\n| round | γ = 0: loss | gradient diversity | consensus error | drift/‖∇F‖ | γ = 0.1: loss | gradient diversity | "
          "consensus error | drift/‖∇F‖ |\n|---|---|---|---|---|---|---|---|---|")
    for i, at in enumerate(ROUNDS):
        cells = []
        for run in shown.values():
            probe, record = run["probes"][1 + i], [r for r in run["rounds"] if r["round"] == at][-1]
            drift = math.sqrt(probe["steps"][0]["average_drift_squared"])
            cells += [record["loss"], probe["gradient_diversity"], record["consensus_error"], drift / probe["gradient_norm"]]
        print(f"| {at} | " + " | ".join(f"{x:.3g}" for x in cells) + " |")


if __name__ == "__main__":
    main()
