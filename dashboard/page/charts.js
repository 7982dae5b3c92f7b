// The charts. Each is made once and given its points again when there are new ones.
'use strict';

const Charts = (() => {
  const charts = new Map();
  const kMostPoints = 1500;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Evenly thinned, first and last kept: no screen shows more.
  function thin(points) {
    if (points.length <= kMostPoints) return points;
    const step = (points.length - 1) / (kMostPoints - 1);
    return Array.from({length: kMostPoints}, (_, i) => points[Math.round(i * step)]);
  }

  function axis(title, log) {
    return {
      type: log ? 'logarithmic' : 'linear',
      title: {display: true, text: title, color: color('--soft')},
      grid: {color: color('--line')},
      ticks: {
        color: color('--soft'),
        maxTicksLimit: 9,
        callback: (value) => {
          if (!log) return number(value);
          const power = Math.log10(value);
          return Math.abs(power - Math.round(power)) > 1e-9 ? null : number(10 ** Math.round(power));
        },
      },
    };
  }

  function options(x, y) {
    return {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      parsing: false,
      normalized: true,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {x, y},
      plugins: {
        legend: {labels: {color: color('--ink'), usePointStyle: true, pointStyle: 'line',
                          filter: (item) => !item.text.startsWith('_')}},
        tooltip: {filter: (item) => !item.dataset.label.startsWith('_')},
      },
    };
  }

  function line(label, points, shade, more) {
    return {label, data: thin(points), borderColor: color(shade), backgroundColor: color(shade),
            borderWidth: 2, pointRadius: points.length > 60 ? 0 : 3, spanGaps: false, ...more};
  }

  // Whether an axis is logarithmic where somebody has chosen; else each chart decides.
  const chosenScale = new Map();
  const isLog = (id, byDefault) => chosenScale.get(id) ?? byDefault;

  // A box to tick below the chart `id`.
  function scaleSwitch(id) {
    const label = document.createElement('label');
    const box = document.createElement('input');
    label.className = 'scale';
    label.hidden = true;
    box.type = 'checkbox';
    box.id = `${id}-log`;
    box.addEventListener('change', () => {
      chosenScale.set(id, box.checked);
      show();
    });
    label.append(box, ' logarithmic');
    return label;
  }

  function draw(id, x, y, datasets) {
    const chart = charts.get(id);
    const empty = datasets.every((set) => set.data.length === 0);
    document.getElementById(id).parentElement.hidden = empty; // bare axes say nothing
    const box = document.getElementById(`${id}-log`);
    if (box) {
      box.parentElement.hidden = empty;
      box.checked = y.type === 'logarithmic';
    }
    if (empty) return;
    // A logarithmic axis has no zero, and no negative numbers.
    if (y.type === 'logarithmic') {
      for (const set of datasets) set.data = set.data.map((p) => (p.y > 0 ? p : {x: p.x, y: NaN}));
    }
    if (chart) {
      chart.options = options(x, y);
      chart.data.datasets = datasets;
      chart.update('none');
      return;
    }
    charts.set(id, new Chart(document.getElementById(id),
                             {type: 'line', data: {datasets}, options: options(x, y)}));
  }

  function driftOverSteps(probe) {
    const steps = probe ? probe.steps : [];
    const log = isLog('drift-h', true);
    const at = (name) => steps.map((s) => ({x: s.h, y: s[name] ?? NaN}));
    const smallest = Math.min(...steps.map((s) => s.unbiased_drift_squared).filter((value) => value > 0));
    const measured = steps.some((s) => s.interval_low !== null && s.interval_low < s.interval_high);
    const sets = [line(title('unbiased_drift_squared'), at('unbiased_drift_squared'), '--drift'),
                  line(title('drift_bound'), at('drift_bound'), '--bound', {borderDash: [6, 4]})];
    if (steps.some((s) => s.classic_bound !== null && s.classic_bound > 0)) {
      sets.push(line(title('classic_bound'), at('classic_bound'), '--classic', {borderDash: [2, 3], pointRadius: 0}));
    }
    if (measured) {
      const band = {borderWidth: 0, pointRadius: 0, backgroundColor: color('--band')};
      const low = steps.map((s) => ({x: s.h, y: s.interval_low > 0 || !log ? s.interval_low : smallest / 100}));
      sets.push(line('95 % interval', at('interval_high'), '--band', {...band, fill: '+1'}));
      sets.push(line('_low', low, '--band', band));
    }
    const x = axis('local steps H', true);
    x.afterBuildTicks = (scale) => { scale.ticks = steps.map((s) => ({value: s.h})); };
    x.ticks.callback = (value) => value;
    draw('drift-h', x, axis('squared norm', log), sets);
  }

  // The training phases: their numbers, and a word for each where there are several.
  const phasesOf = (rounds) => [...new Set(rounds.map((r) => r.phase))];
  const inPhase = (phases, phase) => (phases.length > 1 ? `, phase ${phase + 1}` : '');
  const kDashes = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

  function driftOverRounds(rounds) {
    const phases = phasesOf(rounds);
    const sets = phases.flatMap((phase, k) => {
      const own = rounds.filter((r) => r.phase === phase);
      // A round measures the model that it starts from.
      const at = (name) => own.filter((r) => r[name] !== null).map((r) => ({x: r.round - 1, y: r[name]}));
      return [line(title('unbiased_drift_squared') + inPhase(phases, phase), at('unbiased_drift_squared'), '--drift', {borderDash: kDashes[k % 4]}),
              line(title('drift_bound') + inPhase(phases, phase), at('drift_bound'), '--bound', {borderDash: phases.length > 1 ? kDashes[k % 4] : [6, 4]})];
    });
    draw('drift-r', axis('rounds of FedAvg', false), axis('squared norm', isLog('drift-r', true)), sets);
  }

  function spansDecades(points) {
    const values = points.map((p) => p.y);
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    return least > 0 && most > 50 * least;
  }

  function loss(rounds, end, evaluations) {
    const phases = phasesOf(rounds);
    const sets = phases.flatMap((phase, k) => {
      const points = rounds.filter((r) => r.phase === phase && r.loss !== null).map((r) => ({x: r.round - 1, y: r.loss}));
      if (end && phase === phases[phases.length - 1]) points.push({x: end.rounds, y: end.loss});
      const tests = evaluations.filter((e) => e.trained_in_phase === phase && e.test_loss !== null)
                        .map((e) => ({x: e.trained_rounds, y: e.test_loss}));
      const lines = [line('training loss' + inPhase(phases, phase), points, '--drift', {borderDash: kDashes[k % 4]})];
      if (tests.length) lines.push(line('test loss' + inPhase(phases, phase), tests, '--bound', {borderDash: phases.length > 1 ? kDashes[k % 4] : [6, 4]}));
      return lines;
    });
    draw('loss', axis('rounds of FedAvg', false), axis('loss', isLog('loss', spansDecades(sets.flatMap((set) => set.data)))), sets);
  }

  // Any measure; points: [{x, y}].
  function measure(id, title, over, points) {
    draw(id, axis(over, false), axis(title, isLog(id, spansDecades(points))), [line(title, points, '--drift')]);
  }

  function accuracy(evaluations) {
    const trained = evaluations.filter((e) => e.trained_rounds !== null);
    const phases = [...new Set(trained.map((e) => e.trained_in_phase))];
    const at = (phase, name) => trained.filter((e) => e.trained_in_phase === phase && e[name] !== null)
                                    .map((e) => ({x: e.trained_rounds, y: 100 * e[name]}));
    const sets = phases.flatMap((phase, k) => {
      const central = at(phase, 'central_accuracy');
      return [line('accuracy on clients’ test data' + inPhase(phases, phase), at(phase, 'accuracy'), '--good', {borderDash: kDashes[k % 4]}),
              ...(central.length ? [line('on the central test set' + inPhase(phases, phase), central, '--drift', {borderDash: [6, 4]})] : [])];
    }).filter((set) => set.data.length > 0);
    const last = trained[trained.length - 1];
    if (sets.length && last && last.majority_accuracy) {
      const most = Math.max(...trained.map((e) => e.trained_rounds));
      sets.push(line('most frequent class', [{x: 0, y: 100 * last.majority_accuracy}, {x: most, y: 100 * last.majority_accuracy}],
                     '--classic', {borderDash: [2, 3], pointRadius: 0}));
    }
    draw('accuracy', axis('rounds of FedAvg', false), axis('accuracy, %', isLog('accuracy', false)), sets);
  }

  // What a chart shows, for tests and the console.
  const seriesOf = (id) => charts.get(id).data.datasets;
  const scaleOf = (id) => charts.get(id).options.scales.y.type;

  return {driftOverSteps, driftOverRounds, loss, accuracy, measure, scaleSwitch, seriesOf, scaleOf};
})();
