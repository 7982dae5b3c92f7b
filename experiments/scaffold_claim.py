#!/usr/bin/python3
"""The paper's claim that "SCAFFOLD and FedAvg have roughly identical performance on many realistic federated datasets"
and differ on synthetic conflict, and whether the measured drift tells where.

  experiments/scaffold_claim.py FOLDER --bin build/bin [--chart docs/pictures/scaffold.svg]

Softmax regression by FedAvg and by SCAFFOLD: the same start, step size (1/L of the steepest client), 10 full-batch local
steps, 50 rounds, all clients. FEMNIST by writer (images of 14 x 14, at most 60 a writer), Stack Exchange by user and
Shakespeare by role (next word or character by the two before), heart disease by hospital, each also with the same examples dealt at
random; and logistic clients that conflict more and more. FOLDER as for `./run real`. Prints the table of docs/results.md,
"SCAFFOLD and FedAvg".
"""

import argparse

import numpy as np

import federations
from release import run

H, ROUNDS, L2 = 10, 50, 1e-3


def smoothness(x):
    """No client's loss bends more: half the largest eigenvalue of the inputs' second moments, and the penalty."""
    x = np.hstack([x, np.ones((len(x), 1))]).astype(float)
    return np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2 + L2


def entropy(clients):
    """Loss of the best constant answer, clients weighing the same."""
    classes = 1 + max(y.max() for _, y in clients)
    share = np.mean([np.bincount(y, minlength=classes) / len(y) for _, y in clients], 0)
    return -np.sum(share[share > 0] * np.log(share[share > 0]))


def measure(options, clients):
    """Drift at FedAvg's last round, and both losses, as shares of what SCAFFOLD's model explains."""
    classes = int(1 + max(y.max() for _, y in clients))
    eta = 1 / max(smoothness(x) for x, _ in clients)
    rule = f"step_size: {eta!r} steps: {H}"
    with_end = lambda algorithm: f"""
        phases {{ train {{ start: INITIAL rounds: {ROUNDS} drift_off: true local {{ {rule} {algorithm} }} }} }}
        phases {{ probe {{ point: CURRENT step_size: {eta!r} steps: [{H}] }} }}"""
    probes = run(options, f"""seed: 1 model {{ softmax_regression {{ classes: {max(2, classes)} l2: {L2} }} }}
        {with_end('')} {with_end('scaffold {}')}""", clients)["probes"]
    fedavg, scaffold = probes
    step = fedavg["steps"][0]
    explained = entropy(clients) - scaffold["loss"]
    share = lambda squared: eta * H * squared / 2 / explained
    return {"clients": len(clients), "fedavg": fedavg["loss"], "scaffold": scaffold["loss"],
            "gain": (fedavg["loss"] - scaffold["loss"]) / explained,
            "rho": step["average_drift_squared"], "zeta": fedavg["dissimilarity"],
            "relative": np.sqrt(step["average_drift_squared"]) / fedavg["gradient_norm"],
            "rho_share": share(step["average_drift_squared"]), "zeta_share": share(fedavg["dissimilarity"])}


def problems(folder):
    rng = np.random.default_rng(1)
    real = {"FEMNIST": federations.femnist(folder, most=60)[0], "Stack Exchange": federations.stackexchange(folder),
            "Shakespeare": federations.shakespeare(folder), "heart disease": federations.heart(folder)}
    for name, clients in real.items():
        yield name, "real", clients
        yield f"{name}, dealt at random", "random", federations.deal(clients, rng)
    for strength in (0, 0.1, 0.3, 1, 3):
        yield f"conflict {strength}", "conflict", federations.conflict(np.random.default_rng(2), strength)


def is_settled(f):
    """Where FedAvg stands still, its drift balances the gradient."""
    return f["relative"] > 0.8


def chart(found, path):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"svg.hashsalt": "leeway", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
                            "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    names = {"real": "as they are", "random": "dealt at random", "conflict": "made to conflict"}
    for axis, key, label in ((axes[0], "rho_share", "drift: ηHρ²/2, % of what is explained"),
                             (axes[1], "zeta_share", "dissimilarity: ηHζ²/2, % of what is explained")):
        for kind, marker, colour in (("real", "o", "C0"), ("random", "s", "C2"), ("conflict", "^", "C3")):
            for settled in (True, False):
                rows = [f for _, k, f in found if k == kind and is_settled(f) == settled]
                if rows:
                    axis.plot([100 * f[key] for f in rows], [100 * f["gain"] for f in rows], marker, color=colour,
                              fillstyle="full" if settled else "none",
                              label=names[kind] + ("" if settled else ", FedAvg still under way"))
        for name, kind, f in found:
            if kind != "random" and key == "rho_share":
                axis.annotate(name, (100 * f[key], 100 * f["gain"]), textcoords="offset points", fontsize=7,
                              xytext=(6, -3) if is_settled(f) else (-10, 7))
        ends = [0.02, 10]
        axis.plot(ends, ends, ":", color="gray", linewidth=1)
        axis.set(xlabel=label, xscale="log", yscale="log")
    axes[0].set_ylabel("SCAFFOLD's gain over FedAvg, %")
    axes[0].annotate("equal", (0.022, 0.024), fontsize=7, color="gray", rotation=38)
    axes[1].legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--chart", help="SVG file to write")
    options = parser.parse_args()
    print("| data | clients | loss, FedAvg | SCAFFOLD | SCAFFOLD's gain | ρ² | ζ² | ρ/‖∇F‖ | ηHρ²/2 | ηHζ²/2 |\n"
          "|---|---|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for name, kind, clients in problems(options.folder):
        f = measure(options, clients)
        found.append((name, kind, f))
        print(f"| {name} | {f['clients']} | {f['fedavg']:.5g} | {f['scaffold']:.5g} | {100 * f['gain']:.2g} % | "
              f"{f['rho']:.2g} | {f['zeta']:.2g} | {f['relative']:.2g} | {100 * f['rho_share']:.2g} % | "
              f"{100 * f['zeta_share']:.2g} % |", flush=True)
    for key, label in (("rho_share", "ηHρ²/2"), ("zeta_share", "ηHζ²/2")):
        ratios = [f["gain"] / f[key] for _, _, f in found if is_settled(f)]
        print(f"where FedAvg has settled (ρ > 0.8 ‖∇F‖, {len(ratios)} rows) the gain is {min(ratios):.2g} to {max(ratios):.2g} "
              f"times {label}")
    if options.chart:
        chart(found, options.chart)


if __name__ == "__main__":
    main()
