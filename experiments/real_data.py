#!/usr/bin/python3
"""`./run real DATA`: the paper's figures on real data, and how well each model learns.

DATA holds femnist_leaf/{train,test}, shakespeare_tff/, stackexchange/ and heart_disease/, as
docs/results.md describes; Fashion-MNIST comes from the Debian package dataset-fashion-mnist.
Imports the data, makes the IID-shuffled control of each set, runs every experiment with the real
server and clients, and writes figures and a summary. A repeated call goes on where the last one
stopped.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FASHION = "/usr/share/datasets/fashion-mnist"
SPLITS = range(1, 11)  # a single test fifth is 148 rows: one point is a row and a half
HEART_COLUMNS = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"


class Study:
    def __init__(self, binaries, data, out):
        self.leeway, self.source, self.out = os.path.join(binaries, "leeway"), data, out
        os.makedirs(out, exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.out, *parts)

    def call(self, *arguments):
        """Runs leeway to its end, also when we are interrupted: it then stops by itself."""
        began = time.time()
        child = subprocess.Popen([self.leeway, *map(str, arguments)])
        interrupted = False
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
        if interrupted or code > 128:
            sys.exit(130)
        if code != 0:
            sys.exit(f"real_data.py: leeway {' '.join(map(str, arguments))} ended with {code}")
        return time.time() - began

    def make(self, name, *arguments):
        """A data directory, made once."""
        directory = self.path("data", name)
        if not os.path.isdir(directory):
            os.makedirs(self.path("data"), exist_ok=True)
            seconds = self.call("data", *arguments, "--out", directory)
            print(f"{name}: made in {seconds:.1f} s", flush=True)
        return directory

    def control(self, data):
        return self.make(os.path.basename(data) + "-iid", "partition", data, "--by", "shuffle")

    def run(self, config, data, name):
        self.call("run", os.path.join(HERE, config + ".textproto"), "--data", data, "--out",
                  self.path("runs", name), "--processes", 1)
        return self.show(name)

    def show(self, name):
        text = subprocess.run([self.leeway, "show", self.path("runs", name), "--json"], check=True,
                              stdout=subprocess.PIPE).stdout
        return json.loads(text)

    def verdict(self, name):
        text = subprocess.run([self.leeway, "drift", self.path("runs", name), "--json"],
                              stdout=subprocess.PIPE).stdout
        return json.loads(text)


def import_femnist(study):
    return study.make("femnist", "import", "leaf", os.path.join(study.source, "femnist_leaf"),
                      "--shape", "28,28", "--classes", 62)


def femnist(study):
    study.run("femnist", import_femnist(study), "femnist")


def femnist_iid(study):
    study.run("femnist", study.control(import_femnist(study)), "femnist-iid")


def import_stackexchange(study):
    source = os.path.join(study.source, "stackexchange", "sentences.tsv.gz")
    return study.make("stackexchange", "import", "text", source, "--vocabulary", 2000, "--sequence",
                      20)


def stackexchange(study):
    study.run("stackexchange", import_stackexchange(study), "stackexchange")


def stackexchange_iid(study):
    study.run("stackexchange", study.control(import_stackexchange(study)), "stackexchange-iid")


def shakespeare(study):
    source = os.path.join(study.source, "shakespeare_tff")
    data = study.make("shakespeare", "import", "tff", f"{source}/shakespeare_train.h5", "--test",
                      f"{source}/shakespeare_test.h5")
    study.run("shakespeare", data, "shakespeare")


def fashion(study):
    study.make("fashion", "import", "idx", f"{FASHION}/train-images-idx3-ubyte.gz", "--labels",
               f"{FASHION}/train-labels-idx1-ubyte.gz", "--test-images",
               f"{FASHION}/t10k-images-idx3-ubyte.gz", "--test-labels",
               f"{FASHION}/t10k-labels-idx1-ubyte.gz")
    data = study.make("fashion-100", "partition", study.path("data", "fashion"), "--by", "iid",
                      "--clients", 100, "--central-test")
    study.run("fashion_softmax", data, "fashion-softmax")
    study.run("fashion_cnn", data, "fashion-cnn")


def import_heart(study, name, *more):
    return study.make(name, "import", "csv", os.path.join(study.source, "heart_disease"),
                      "--strip-prefix", "processed.", "--no-header", "--columns", HEART_COLUMNS,
                      "--drop-columns", "slope,ca,thal", "--one-hot", "cp,restecg", "--label", "num",
                      "--label-positive-above", 0, "--scale", "standard", *more)


def heart(study):
    """All rows for the drift and its verdict; with a fifth held out for the accuracy."""
    data = import_heart(study, "heart")
    study.run("heart", data, "heart")
    study.run("heart", study.control(data), "heart-iid")
    for seed in SPLITS:
        data = import_heart(study, f"heart-split{seed}", "--test-fraction", 0.2, "--seed", seed)
        study.run("heart_accuracy", data, f"heart-split{seed}")


PARTS = {f.__name__: f for f in (heart, femnist, femnist_iid, fashion, stackexchange,
                                 stackexchange_iid, shakespeare)}


# ---- what came out


def centralised_accuracy(directory, l2=0.01):
    """Logistic regression on all hospitals' rows together, by Newton's method: an independent
    program. Returns the accuracy on all test rows, and the largest gradient coordinate."""
    parts = {p: [[], []] for p in ("train", "test")}
    for client in sorted(os.listdir(directory)):
        for part, (xs, ys) in parts.items():
            path = os.path.join(directory, client, part)
            if os.path.exists(path + "_x.npy"):
                xs.append(np.load(path + "_x.npy").astype(float))
                ys.append(np.load(path + "_y.npy").astype(float))
    (x, y), (test_x, test_y) = ((np.concatenate(xs), np.concatenate(ys)) for xs, ys in
                                (parts["train"], parts["test"]))
    x, test_x = (np.hstack([a, np.ones((len(a), 1))]) for a in (x, test_x))
    # Two classes with a penalty on both weight vectors are one with half of it.
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        gradient = x.T @ (p - y) / len(y) + l2 / 2 * w
        hessian = (x * (p * (1 - p))[:, None]).T @ x / len(y) + l2 / 2 * np.eye(len(w))
        w -= np.linalg.solve(hessian, gradient)
    return np.mean((test_x @ w > 0) == (test_y > 0.5)), np.max(np.abs(gradient))


def curve(show):
    """(round, accuracy, test loss) of the evaluations while training."""
    return [(e["round_in_phase"], e["central_accuracy"] if e["central_examples"] else e["accuracy"],
             e["central_loss"] if e["central_examples"] else e["test_loss"])
            for e in show["evaluations"] if e["phase"] == 0]


def growth(steps, key):
    """Exponent of a power law in h between the smallest h >= 2 and the largest."""
    steps = [s for s in steps if s["h"] >= 2 and s[key] > 0]
    if len(steps) < 2:
        return float("nan")
    first, last = steps[0], steps[-1]
    return np.log(last[key] / first[key]) / np.log(last["h"] / first["h"])


def table(headers, rows):
    def text(v):
        return f"{v:.3g}" if isinstance(v, float) else str(v)
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join(lines + ["| " + " | ".join(map(text, row)) + " |" for row in rows]) + "\n"


class Figures:
    """SVG files, small enough to keep."""

    def __init__(self, directory):
        import matplotlib
        matplotlib.use("svg")
        import matplotlib.pyplot as pyplot
        pyplot.rcParams.update({"svg.hashsalt": "leeway", "svg.fonttype": "none", "font.size": 9,
                                "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                                "axes.spines.right": False, "lines.markersize": 3.5})
        self.pyplot, self.directory = pyplot, directory
        os.makedirs(directory, exist_ok=True)

    def panels(self, name, panels, width=4.2, share=False, beside=False):
        """panels: [(title, x label, y label, log axes, [(label, x, y, style, colour)])]. The legend
        stands below its panel, where it hides no curve; beside: beside it, for many curves."""
        figure, axes = self.pyplot.subplots(1, len(panels), figsize=(width * len(panels), 3.3),
                                            squeeze=False, sharey=share)
        for axis, (title, x_label, y_label, logs, series) in zip(axes[0], panels):
            for label, x, y, style, colour in series:
                axis.plot(x, y, style, label=label, color=f"C{colour}")
            axis.set(title=title, xlabel=x_label, ylabel=y_label)
            if "x" in logs:
                axis.set_xscale("log")
                ticks = sorted({x for s in series for x in s[1]})
                axis.set_xticks(ticks, [str(t) for t in ticks])
                axis.set_xticks([], minor=True)
            if "y" in logs:
                axis.set_yscale("log")
            # With shared axes the names are the same in every panel.
            if any(s[0] for s in series) and not (share and axis is not axes[0][0]):
                place = ({"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if beside else
                         {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncol": 2})
                axis.legend(fontsize=7.5, frameon=False, **place)
        figure.tight_layout()
        figure.savefig(os.path.join(self.directory, name + ".svg"), metadata={"Date": None})
        self.pyplot.close(figure)


def drift_series(each):
    """each: [(name, probe)]."""
    out = []
    for i, (name, probe) in enumerate(each):
        steps = [s for s in probe["steps"] if s["h"] >= 2]
        h = [s["h"] for s in steps]
        out.append((f"bound, {name}", h, [s["drift_bound"] for s in steps], "-", i))
        low = [(s["h"], s["unbiased_drift_squared"]) for s in steps
               if s["unbiased_drift_squared"] > 0]
        out.append((f"ρ², {name}", [a for a, _ in low], [b for _, b in low], "o--", i))
    return out


def drift_rows(label, probe):
    rows = []
    for s in probe["steps"]:
        if s["h"] < 2:
            continue
        rho = s["unbiased_drift_squared"]
        # Without an interval all clients were asked, or too few to tell.
        interval = "–" if s["interval_low"] is None else \
            f"{s['interval_low']:.2g} to {s['interval_high']:.2g}"
        rows.append([label, s["h"], rho, interval,
                     s["drift_bound"], s["drift_bound"] / rho if rho > 0 else "–"])
    return rows


def growth_line(name, probe):
    return (f"{name}: from H = 2 to {probe['steps'][-1]['h']}, ρ² grows as "
            f"H^{growth(probe['steps'], 'unbiased_drift_squared'):.2f}, its bound as "
            f"H^{growth(probe['steps'], 'drift_bound'):.2f}.")


HEADERS = ["data", "H", "ρ² (unbiased)", "95 % interval", "bound", "bound / ρ²"]


def summarise(study, figures):
    text = []
    done = {name for name in os.listdir(study.path("runs"))} if os.path.isdir(study.path("runs")) \
        else set()
    shows = {name: study.show(name) for name in sorted(done)}

    def pick(name, label, batch_size, at=None):
        """The probes of a set and its control, as far as they have been taken: after a round of
        training, or without one at the end."""
        each = []
        for run, what in ((name, label), (name + "-iid", "IID-shuffled")):
            found = [p for p in shows.get(run, {"probes": []})["probes"]
                     if p["batch_size"] == batch_size
                     and (p["phase"] > 0 if at is None else
                          p["phase"] == 0 and p["round_in_phase"] == at)]
            each += [(what, found[0])] if found else []
        return each

    def drift_part(title, each):
        rows = [row for what, probe in each for row in drift_rows(what, probe)]
        text.append(f"### {title}\n\n" + table(HEADERS, rows) + "\n"
                    + " ".join(growth_line(what, probe) for what, probe in each) + "\n")

    for name, label, title, batch in (("femnist", "by writer", "FEMNIST, 1(a)", 20),
                                      ("stackexchange", "by user", "Stack Exchange, 1(b)", 16)):
        gd, sgd = pick(name, label, 0), pick(name, label, batch)
        if not gd or not sgd:
            continue
        figures.panels(name + "-drift", [
            (f"{title}: gradient descent", "local steps H", "", "xy", drift_series(gd)),
            (f"1(d): batches of {batch}", "local steps H", "", "xy", drift_series(sgd))])
        drift_part(title + ", gradient descent", gd)
        drift_part(f"{title.split(',')[0]}, 1(d), batches of {batch}", sgd)
        text.append("|∇F| at the probed point: " + ", ".join(
            f"{probe['gradient_norm']:.3g} ({what})" for what, probe in gd) + ".\n")
    points = {at: pick("femnist", "by writer", 0, at) for at in (0, 50, 100)}
    if all(points.values()):
        figures.panels("femnist-figure2", [
            (f"round {at}", "local steps H", "", "xy", drift_series(each))
            for at, each in points.items()], 3.6, share=True)
        for at, each in points.items():
            drift_part(f"Figure 2, round {at}", each)
    learning(shows, figures, text)
    if all(shows.get(n, {}).get("status") == "done" for n in ("heart", "heart-iid")):
        heart_part(study, shows, figures, text)
    return "\n".join(text)


def learning(shows, figures, text):
    names = {"femnist": "FEMNIST by writer, CNN", "femnist-iid": "FEMNIST shuffled, CNN",
             "fashion-cnn": "Fashion-MNIST, 100 IID clients, CNN",
             "fashion-softmax": "Fashion-MNIST, softmax regression",
             "shakespeare": "Shakespeare, next character",
             "stackexchange": "Stack Exchange by user, next word",
             "stackexchange-iid": "Stack Exchange shuffled"}
    series, rows = [], []
    for i, (name, label) in enumerate(names.items()):
        points = curve(shows[name]) if name in shows else []
        if not points:
            continue
        series.append((label, [p[0] for p in points], [100 * p[1] for p in points], "o-", i))
        rows.append([label, ", ".join(f"{r}: {100 * a:.1f} %" for r, a, _ in points)])
    if series:
        figures.panels("learning", [("test accuracy, %", "rounds of FedAvg", "", "", series)], 8.5,
                       beside=True)
        text.append("### Learning\n\n" + table(["data and model", "rounds: accuracy"], rows))
    for name in ("femnist", "femnist-iid", "stackexchange", "stackexchange-iid"):
        last = (shows.get(name, {}).get("evaluations") or [{}])[-1]
        if last.get("percentiles"):
            text.append(f"{name}: pooled accuracy {100 * last['accuracy']:.1f} %; over clients "
                        + ", ".join(f"{p['percent']:g} %: {100 * p['accuracy']:.1f} %"
                                    for p in last["percentiles"]) + "\n")


def heart_part(study, shows, figures, text):
    rows, panels = [], []
    for i, (name, label) in enumerate((("heart", "by hospital"), ("heart-iid", "IID-shuffled"))):
        verdict = study.verdict(name)
        for e in verdict["evidence"]:
            rows.append([label, e["h"], e["average_drift_squared"], e["drift_bound"], e["gap"],
                         e["gap_in_standard_errors"], e["verdict"]])
        text.append(f"Heart disease, {label}: {verdict['verdict']}. {verdict['sentence']} "
                    + " ".join(verdict["warnings"]) + "\n")
        h = [e["h"] for e in verdict["evidence"] if e["h"] > 1]
        pick = [e for e in verdict["evidence"] if e["h"] > 1]
        panels.append([(f"bound, {label}", h, [e["drift_bound"] for e in pick], "-", i),
                       (f"ρ², {label}", h, [e["average_drift_squared"] for e in pick], "o--", i)])
        panels.append([(label, h, [e["gap_in_standard_errors"] for e in pick], "o-", i)])
    figures.panels("heart", [
        ("heart disease: drift at w*", "local steps H", "", "xy", panels[0] + panels[2]),
        ("loss gap of FedAvg's fixed point", "local steps H", "in standard errors", "xy",
         panels[1] + panels[3])])
    text.append("### Heart disease\n\n" + table(
        ["data", "H", "ρ²", "bound", "loss gap", "in standard errors", "verdict"], rows))
    splits = [n for n in (f"heart-split{seed}" for seed in SPLITS)
              if n in shows and len(shows[n]["evaluations"]) == 3]
    if splits:
        central, gradients = zip(*(centralised_accuracy(study.path("data", n)) for n in splits))
        found = np.array([[e["accuracy"] for e in shows[n]["evaluations"]] for n in splits])
        central = np.array(central)
        rows = []
        for k, label in enumerate(("w*", "FedAvg, H = 2", "FedAvg, H = 10")):
            difference = 100 * (found[:, k] - central)
            error = np.std(difference, ddof=1) / np.sqrt(len(splits))
            rows.append([label, f"{100 * found[:, k].mean():.2f} %", f"{difference.mean():+.2f}",
                         f"{error:.2f}", f"{difference.min():+.2f} to {difference.max():+.2f}"])
        text.append(f"Accuracy on a held-out fifth of all hospitals' rows, pooled, over "
                    f"{len(splits)} splits; centralised Newton in numpy {100 * central.mean():.2f} % "
                    f"(largest gradient coordinate {max(gradients):.1e}).\n\n" + table(
                        ["model", "accuracy", "points from centralised", "standard error", "range"],
                        rows))


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="directory of the data sets")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--out", default="out/real")
    parser.add_argument("--figures", help="where the SVG files go (default: OUT/figures)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--summary", action="store_true", help="only sum up what there is")
    options = parser.parse_args()
    study = Study(options.bin, options.data, options.out)
    if not options.summary:
        for name in options.only:
            PARTS[name](study)
    summary = summarise(study, Figures(options.figures or study.path("figures")))
    with open(study.path("summary.md"), "w") as f:
        f.write(summary)
    print(summary)


if __name__ == "__main__":
    main()
