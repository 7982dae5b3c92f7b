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
          if (!log) return Math.abs(value) >= 1e6 ? value.toExponential(1) : Number(value.toPrecision(6));
          const power = Math.log10(value);
          if (Math.abs(power - Math.round(power)) > 1e-9) return null;
          return Math.abs(power) < 4 ? Number(value.toPrecision(1)) : value.toExponential(0);
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

  function draw(id, x, y, datasets) {
    const chart = charts.get(id);
    const empty = datasets.every((set) => set.data.length === 0);
    document.getElementById(id).parentElement.hidden = empty; // bare axes say nothing
    if (empty) return;
    if (chart) {
      chart.options = options(x, y);
      chart.data.datasets = datasets;
      chart.update('none');
      return;
    }
    charts.set(id, new Chart(document.getElementById(id),
                             {type: 'line', data: {datasets}, options: options(x, y)}));
  }

  // A logarithmic axis has no zero, and no negative numbers.
  const positive = (value) => (value !== null && value > 0 ? value : NaN);

  function driftOverSteps(probe) {
    const steps = probe ? probe.steps : [];
    const at = (name) => steps.map((s) => ({x: s.h, y: positive(s[name])}));
    const smallest = Math.min(...steps.map((s) => positive(s.unbiased_drift_squared)).filter(Number.isFinite));
    const measured = steps.some((s) => s.interval_low !== null && s.interval_low < s.interval_high);
    const sets = [line('average drift ρ²', at('unbiased_drift_squared'), '--drift'),
                  line('its bound', at('drift_bound'), '--bound', {borderDash: [6, 4]})];
    if (steps.some((s) => s.classic_bound !== null && s.classic_bound > 0)) {
      sets.push(line('older theory', at('classic_bound'), '--classic', {borderDash: [2, 3], pointRadius: 0}));
    }
    if (measured) {
      const band = {borderWidth: 0, pointRadius: 0, backgroundColor: color('--band')};
      const low = steps.map((s) => ({x: s.h, y: s.interval_low > 0 ? s.interval_low : smallest / 100}));
      sets.push(line('95 % interval', at('interval_high'), '--band', {...band, fill: '+1'}));
      sets.push(line('_low', low, '--band', band));
    }
    const x = axis('local steps H', true);
    x.afterBuildTicks = (scale) => { scale.ticks = steps.map((s) => ({value: s.h})); };
    x.ticks.callback = (value) => value;
    draw('drift-h', x, axis('squared drift', true), sets);
  }

  function driftOverRounds(rounds) {
    const at = (name) => rounds.map((r, i) => ({x: i + 1, y: positive(r[name])}))
                             .filter((p, i) => rounds[i][name] !== null);
    draw('drift-r', axis('training round', false), axis('squared drift', true),
         [line('average drift ρ²', at('average_drift_squared'), '--drift'),
          line('its bound', at('drift_bound'), '--bound', {borderDash: [6, 4]})]);
  }

  function spansDecades(points) {
    const values = points.map((p) => p.y);
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    return least > 0 && most > 50 * least;
  }

  function loss(rounds) {
    const points = rounds.map((r, i) => ({x: i + 1, y: r.loss})).filter((p) => p.y !== null);
    draw('loss', axis('training round', false), axis('loss', spansDecades(points)),
         [line('training loss', points, '--drift')]);
  }

  // Any measure; points: [{x, y}].
  function measure(id, title, over, points) {
    draw(id, axis(over, false), axis(title, spansDecades(points)), [line(title, points, '--drift')]);
  }

  function accuracy(evaluations) {
    const points = evaluations.filter((e) => e.accuracy !== null).map((e) => ({x: e.round, y: 100 * e.accuracy}));
    draw('accuracy', axis('round of the run', false), axis('accuracy, %', false),
         [line('accuracy on test data', points, '--good', {pointRadius: 3})]);
  }

  return {driftOverSteps, driftOverRounds, loss, accuracy, measure};
})();
