"""Experiments on convergence: Theorems 1 and 2, Corollaries 1 and 2, Table 1."""

import numpy as np

from paper_lab import Failed, Quadratics, slope
from paper_page import LOG, SEMILOG, Section


def theorem1(lab, quick):
    s = Section("theorem1", "Theorem 1: linear convergence for any H",
                "With full batches and server rate 1, w_T − w* = [E_c(I − ηA_c)^H]^T (w_0 − w*): "
                "FedAvg goes to w* at a linear rate, faster with larger H, in spite of "
                "heterogeneity.")
    s.command("leeway data synthetic --out DIR",
              "leeway run experiments/theorem1.textproto --data DIR --out RUN")
    data = lab.data("theorem1")
    run = lab.run("theorem1", "theorem1", data)
    q = Quadratics(data)
    worst = above = 0.0
    rows, series, tenth = [], [], []
    for i, rounds in enumerate(run.trainings()):
        h, eta = rounds[0]["local_steps"], rounds[0]["step_size"]
        measured = np.sqrt([r["distance_squared"] for r in rounds])
        factor = q.contraction(eta, h)
        shift = q.displacement(q.optimum, eta, h)
        exact, closed = [], []
        e = c = -q.optimum
        for _ in rounds:
            exact.append(np.linalg.norm(e))
            closed.append(np.linalg.norm(c))
            e, c = factor @ e - shift, factor @ c
        rest = np.linalg.norm(q.fixed_point(eta, h) - q.optimum)
        deviation = np.max(np.abs(measured / exact - 1))
        clear = measured > 100 * rest  # where the finite-M floor cannot be seen
        off = np.max(np.abs(measured / closed - 1)[clear])
        worst, above = max(worst, deviation), max(above, off)
        rows.append([str(h), deviation, off, measured[-1], rest])
        below = np.nonzero(measured <= 0.1 * measured[0])[0]
        tenth.append(int(below[0]) if len(below) else len(rounds) + 1)
        t = np.arange(len(rounds))
        series += [(f"H = {h}", t[::8], measured[::8], "o", i), (None, t, closed, "-", i)]
    s.check("measured error against the exact recursion for these 100 clients, largest relative "
            "deviation ≤ 1e-6", worst, worst <= 1e-6)
    s.check("measured error against Theorem 1 while it is 100 times above the floor of 100 "
            "clients, largest relative deviation ≤ 3 %", above, above <= 0.03)
    s.check("a larger H needs fewer rounds to a tenth of the first error (201: more than 200)",
            " > ".join(map(str, tenth)), all(a > b for a, b in zip(tenth, tenth[1:])))
    s.chart(("measured (dots), Theorem 1 (lines)", "round", "‖w_t − w*‖", SEMILOG, series))
    s.table(["H", "against exact recursion", "against Theorem 1", "error after 200 rounds",
             "floor of 100 clients (H → fixed point)"], rows)
    s.note("Theorem 1 is for infinitely many clients (ρ = 0). With 100, FedAvg comes to rest at "
           "the floor in the last column, which the exact recursion has and the theorem has not.")
    return s


def theorem2(lab, quick):
    s = Section("theorem2", "Theorem 2 and Corollary 1: the bound, term by term",
                "With η ≤ min(1/L, 1/(μH)): E‖w_T − w*‖² ≤ (1 − αηHμ/2)^T ‖w_0 − w*‖² + (2αηH/μ) Var "
                "+ (20/μ²) E‖δ‖² + 20ρ²/μ². For full batches with α = 1/8 and the largest η this is "
                "exp(−T min{κ, H}/(16κ)) ‖w_0 − w*‖² + 20ρ²/μ² (Corollary 1).")
    s.command("leeway data synthetic --condition 10 --clients 20 --samples 400 --dimension 10 "
              "[--conflict 0.5] --out DIR",
              "leeway run experiments/theorem2.textproto --data DIR --out RUN")
    kinds = {"shared conditional": {}, "shifted optima γ = 0.5": {"conflict": 0.5}}

    def one(kind):
        name = f"theorem2_{len(kinds[kind])}"
        data = lab.data(name, condition=10, clients=20, samples=400, dimension=10, **kinds[kind])
        return lab.run("theorem2", name, data), Quadratics(data)

    rows, panels = [], []
    worst = corollary = rest = closed = least_floor = 0.0
    for kind, (run, q) in zip(kinds, lab.parallel(one, kinds)):
        c = run.show["constants"]
        mu, kappa = (c["smallest_client_convexity"],
                     c["largest_client_smoothness"] / c["smallest_client_convexity"])
        noise = {(p["step_size"], x["h"], p["batch_size"]): x
                 for p in run.show["probes"] for x in p["steps"]}
        for p in run.show["fixed_points"]:
            exact = np.linalg.norm(q.fixed_point(p["step_size"], p["h"]) - q.optimum)
            closed = max(closed, abs(p["distance"] / exact - 1))
            share = p["distance"] ** 2 * mu ** 2 / (20 * run.drift()[p["h"]][0])
            rest, least_floor = max(rest, share), max(least_floor, 1 / share)
        series = []
        for i, rounds in enumerate(run.trainings()):
            first = rounds[0]
            h, eta, alpha, batch = (first[k] for k in
                                    ("local_steps", "step_size", "server_rate", "batch_size"))
            if (eta, h, 0) not in noise or (eta, h, batch) not in noise:
                raise Failed(f"theorem2: no probe has the H = {h}, step size and batch of its training")
            t = np.arange(len(rounds))
            error = np.array([r["distance_squared"] for r in rounds])
            shrunk = (1 - alpha * eta * h * mu / 2) ** t * error[0]
            variance = bias = 0.0
            if batch:
                variance = 2 * alpha * eta * h / mu * noise[eta, h, batch]["pseudo_gradient_variance"]
                bias = 20 / mu ** 2 * max(0.0, noise[eta, h, batch]["iterate_bias_squared"])
            floor = 20 * run.drift()[h][0] / mu ** 2
            bound = shrunk + variance + bias + floor
            worst = max(worst, np.max((error / bound)[1:]))
            if not batch:
                rate = np.exp(-t * min(kappa, h) / (16 * kappa)) * error[0]
                corollary = max(corollary, np.max((error / (rate + floor))[1:]))
            rows.append([kind, f"{h}, batch {batch}" if batch else str(h), eta,
                         1 - alpha * eta * h * mu / 2, (error[100] / error[50]) ** (1 / 50),
                         shrunk[-1], variance, bias, floor, bound[-1], error[-1]])
            series += [(f"H = {h}" + (", SGD" if batch else ""), t, error, "-", i),
                       (None, t, bound, "--", i)]
        panels.append((kind, "round", "‖w_t − w*‖²", SEMILOG, series))
    s.check("measured / bound of Theorem 2, largest over all rounds after the first, H and data, at "
            "most 1", worst, worst <= 1)
    s.check("full batches: measured / bound of Corollary 1, the same, at most 1", corollary,
            corollary <= 1)
    s.check("FedAvg's resting point: ‖w_H − w*‖ against the closed form, largest relative deviation "
            "≤ 1e-6", closed, closed <= 1e-6)
    s.check("its ‖w_H − w*‖² as a share of the floor 20ρ²/μ², at most 1", rest, rest <= 1)
    s.chart(*panels)
    s.table(["data", "H", "η", "rate of the bound", "measured rate, rounds 50–100", "1: shrunk",
             "2: variance", "3: bias", "4: 20ρ²/μ²", "bound", "measured"], rows,
            "The terms after the last round")
    s.note("Lines: measured; dashed: bound. α = 1/8; μ and L are the smallest and largest of any "
           "client; Var and the iterate bias are those at w*, from 40 repeats of every client's batches "
           "of 4. “Measured rate” of a run that has come to rest is 1. Where FedAvg rests, the floor "
           f"overstates its ‖w − w*‖² by {1 / rest:.3g} to {least_floor:.3g} times.")
    return s


def corollary2(lab, quick):
    s = Section("corollary2", "Corollary 2: quadratic objectives, stochastic steps",
                "E‖w_T − w*‖² = Õ(exp(−T min{κ, H}/(16κ)) + σ²/(MHT) + ρ²): with a step size chosen for "
                "T, the error falls as 1/(MHT), in spite of heterogeneity.")
    s.command("leeway data synthetic --condition 10 --clients 20 --samples 1000 --dimension 10 "
              "--noise-sd 1 --out DIR",
              "leeway run experiments/corollary2.textproto --data DIR --out RUN    # seeds 1 ...",
              "leeway run experiments/corollary2_clients.textproto --data DIR --out RUN    "
              "# --clients 10, 40, 160")
    seeds = range(1, 3 if quick else 10)
    ms = [10, 40] if quick else [10, 40, 160]
    options = dict(condition=10, samples=1000, dimension=10, noise_sd=1)
    data = {m: lab.data(f"corollary2_{m}", clients=m, **options) for m in [20, *ms]}
    files = {20: "corollary2", **{m: "corollary2_clients" for m in ms}}

    def one(job):
        m, seed = job
        run = lab.run(files[m], f"corollary2_{m}_{seed}", data[m], seed=seed)
        return run, run.trainings()

    jobs = [(m, seed) for m in (160, 20, 40, 10) if m in files for seed in seeds]
    results = dict(zip(jobs, lab.parallel(one, jobs)))
    quadratics = {m: Quadratics(d) for m, d in data.items()}

    def late(rounds):
        """Mean over the last quarter, where the start is forgotten."""
        return np.mean([r["distance_squared"] for r in rounds[3 * len(rounds) // 4:]])

    rows, means = [], {}
    for m in files:
        for phase, rounds in enumerate(results[m, 1][1]):
            h, eta, t = rounds[0]["local_steps"], rounds[0]["step_size"], len(rounds)
            each = [late(results[m, seed][1][phase]) for seed in seeds]
            rest = quadratics[m].fixed_point(eta, h) - quadratics[m].optimum
            # What stochastic steps add to where the mean path rests.
            means[m, h, t] = np.mean(each) - rest @ rest
            rows.append([str(m), str(h), str(t), eta, np.mean(each),
                         np.std(each, ddof=1) / np.sqrt(len(each)), rest @ rest,
                         means[m, h, t] * m * h * t])
    for what, size in (("M", [(m, 10, 200) for m in sorted({20, *ms})]),
                       ("H", [(20, h, 200) for h in (2, 5, 10, 20, 50)]),
                       ("T", [(20, 10, t) for t in (100, 200, 400, 800)])):
        x = [v["MHT".index(what)] for v in size]
        got = slope(x, [means[v] for v in size])
        s.check(f"exponent of the error in {what}: −1 ± 0.15", got, abs(got + 1) <= (0.5 if quick else 0.15))
    run, trainings = results[20, 1]
    mu = run.show["constants"]["smallest_client_convexity"]
    (noisy,) = (p for p in run.show["probes"] if p["batch_size"] == 1)
    variance, eta = noisy["steps"][0]["pseudo_gradient_variance"], noisy["step_size"]
    floor = 20 * run.drift()[10][0] / mu ** 2
    bound = 2 * eta * 10 / mu * variance + floor
    s.check("H = 10, T = 100: error / (variance term + floor of Theorem 2), at most 1",
            means[20, 10, 100] / bound, means[20, 10, 100] <= bound)
    series = []
    for i, rounds in enumerate(trainings[:4]):
        error = np.mean([[r["distance_squared"] for r in results[20, seed][1][i]] for seed in seeds], 0)
        series.append((f"T = {len(rounds)}", np.arange(len(error)), error, "-", i))
    s.chart(("mean over seeds, H = 10, M = 20", "round", "‖w_t − w*‖²", LOG, series),
            ("error · MHT is level", "M, H or T, as a multiple of its smallest", "", ("log", "linear"),
             [(f"over {what}", [v["MHT".index(what)] / size[0]["MHT".index(what)] for v in size],
               [means[v] * np.prod(v) for v in size], "o-", i)
              for i, (what, size) in enumerate((
                  ("M", [(m, 10, 200) for m in sorted({20, *ms})]),
                  ("H", [(20, h, 200) for h in (2, 5, 10, 20, 50)]),
                  ("T", [(20, 10, t) for t in (100, 200, 400, 800)])))]))
    s.table(["M", "H", "T", "η", "error", "s.e.", "of it ‖w_H − w*‖² (closed form)",
             "(error − that) · MHT"], rows)
    s.note(f"Error: ‖w_t − w*‖², mean over the last quarter of the rounds and {len(seeds)} seeds of the "
           "batches. Batches of one example, server rate 1, ηHT = 60 ≈ 8/μ. The corollary's first term is "
           "negligible here; what the deterministic fixed point contributes (its ρ² term) is taken off.")
    return s


def table1(lab, quick):
    eps = 1e-3
    s = Section("table1", "Table 1: rounds to reach ε",
                "GD needs O(κ log 1/ε) rounds; FedAvg with H local steps needs O(max{1, κ/H} log "
                "1/ε) when ρ = 0: more local steps mitigate ill-conditioning.")
    s.command("leeway data synthetic --condition K --clients 10 --samples 400 --dimension 10 "
              "--out DIR    # K = 10, 100, 1000",
              "leeway run experiments/table1_kappaK.textproto --data DIR --out RUN")
    kappas = [10] if quick else [1000, 100, 10]

    def one(kappa):
        name = f"table1_kappa{kappa}"
        return lab.run(name, name, lab.data(name, condition=kappa, clients=10, samples=400,
                                            dimension=10, noise_sd=0.01))

    rows, series = [], []
    spread = []
    for i, (asked, run) in enumerate(zip(kappas, lab.parallel(one, kappas))):
        c = run.show["constants"]
        kappa = c["largest_client_smoothness"] / c["smallest_client_convexity"]
        hs, needed, predicted = [], [], []
        for rounds in run.trainings():
            error = np.array([r["distance_squared"] for r in rounds])
            below = np.nonzero(error <= eps * error[0])[0]
            h = rounds[0]["local_steps"]
            if not len(below):
                s.check(f"κ = {kappa:.0f}, H = {h}: reaches ε", "never", False)
                continue
            hs.append(h)
            needed.append(int(below[0]))
            predicted.append(max(1, kappa / h) * 0.5 * np.log(1 / eps))
            spread.append(needed[-1] / predicted[-1])
            rows.append([f"{kappa:.1f} (asked {asked})", str(h), str(needed[-1]), predicted[-1],
                         spread[-1], needed[0] / needed[-1]])
        series += [(f"κ = {kappa:.0f}, measured", hs, needed, "o", i),
                   (None, hs, predicted, "-", i)]
        small = [(h, n) for h, n in zip(hs, needed) if h <= kappa / 5]
        if len(small) > 1:
            got = slope(*zip(*small))
            s.check(f"κ = {kappa:.0f}: rounds go with 1/H while H ≤ κ/5: exponent −1 ± 0.1", got,
                    abs(got + 1) <= 0.1)
    s.check("rounds measured / predicted max{1, κ/H} ½ log(1/ε), at most 1 (an upper bound) and "
            "at least 1/5", f"{min(spread):.2f} to {max(spread):.2f}",
            max(spread) <= 1.0 and min(spread) >= 0.2)
    s.chart((f"rounds to ‖w − w*‖² ≤ {eps} ‖w_0 − w*‖²", "local steps H", "rounds", LOG, series))
    s.table(["κ = L/μ over clients", "H", "rounds", "predicted", "ratio", "fewer than GD by"], rows)
    s.note("η = min(1/L, 1/(μH)) as Leeway chooses it from the measured constants, server rate 1. "
           "Lines: prediction with constant ½, since the error is a square. The 1/ε² rows of older "
           "work are upper bounds that nothing here comes near.")
    return s
