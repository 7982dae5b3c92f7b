// The page: follows the run by server-sent events and shows what they say. All text
// from the run goes into textContent, never into HTML.
'use strict';

const run = {rounds: [], probes: [], evaluations: [], fixed_points: [], clients: [], events: []};
let latest = null;     // the last message
let measures = [];     // {name, title, about} of all that rounds measure
let lastId = '';       // of the last event, to go on from
let ended = false;
let chosenProbe = null; // by the user; null: the newest
let redraw = 0;        // a frame that is asked for
const kRowsShown = 200;

const find = (id) => document.getElementById(id);
const say = (id, text) => { if (find(id).textContent !== text) find(id).textContent = text; };

// What a measure is called: the same name in the report and in `leeway show`.
const title = (name) => (measures.find((one) => one.name === name) || {title: name}).title;

// With four digits, as everywhere in Leeway; losses, which are compared with one another, with six.
function number(value, digits = 4) {
  if (value === null || value === undefined) return '–';
  if (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5)) return String(Number(value.toPrecision(digits)));
  const [mantissa, power] = value.toExponential(digits - 1).split('e');
  const raised = [...String(Number(power))].map((c) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(c)]).join('');
  return Number(mantissa) === 1 ? `10${raised}` : `${Number(mantissa)}×10${raised}`;
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const percent = (share) => `${number(100 * share)} %`;
const time = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

function duration(seconds) {
  if (seconds < 1) return 'less than a second';
  if (seconds < 90) return `about ${Math.round(seconds)} s`;
  if (seconds < 5400) return `about ${Math.round(seconds / 60)} min`;
  return `about ${(seconds / 3600).toFixed(1)} h`;
}

// cells: text or numbers; numbers keep their exact value in data-value. A head that begins with a
// space is of numbers, one that ends with a colon of single words, which are not broken. A cell
// {text, className} has a colour.
function fill(table, heads, rows) {
  const plain = (head) => head.replace(':', '').trim();
  const cell = (tag, content, head) => {
    const made = document.createElement(tag);
    const value = content !== null && content.text !== undefined ? content.text : content;
    const numeric = typeof value === 'number' || value === null;
    const digits = head.toLowerCase().endsWith('loss') ? 6 : 4;
    made.textContent = tag === 'th' ? plain(value) : numeric ? number(value, digits) : value;
    made.dataset.head = plain(head); // a phone shows it beside the value
    if (numeric && value !== null) made.dataset.value = String(value);
    if (numeric || head.startsWith(' ')) made.className = 'number';
    if (head.endsWith(':')) made.className = 'word';
    if (content !== null && content.className) made.classList.add(content.className);
    if (tag === 'th') made.scope = 'col';
    return made;
  };
  const line = (tag, values) => {
    const made = document.createElement('tr');
    values.forEach((value, i) => made.append(cell(tag, value, heads[i])));
    return made;
  };
  const head = document.createElement('thead');
  head.append(line('th', heads));
  const body = document.createElement('tbody');
  for (const row of rows) body.append(line('td', row));
  find(table).replaceChildren(head, body);
  find(table).hidden = rows.length === 0;
}

function take(message) {
  if (latest && latest.run_id !== message.run_id) {
    for (const list of Object.values(run)) list.length = 0;
  } else if (message.after_round === 0) {
    for (const name of ['rounds', 'probes', 'evaluations', 'fixed_points']) run[name].length = 0;
  }
  latest = message;
  if (message.measures) measures = message.measures;
  for (const name of ['rounds', 'probes', 'evaluations', 'fixed_points']) {
    for (const one of message.run[name]) run[name].push(one);
  }
  for (const client of message.clients) run.clients[client.index] = client;
  const seen = run.events.length ? run.events[run.events.length - 1].sequence : 0;
  for (const event of message.events) if (event.sequence > seen) run.events.push(event);
  if (!redraw) redraw = requestAnimationFrame(show);
}

function showProgress() {
  const p = latest.progress;
  say('name', latest.name);
  document.title = `${latest.name} · Leeway`;
  say('state', p.state);
  find('state').className = `badge ${p.state}`;
  find('message').hidden = !p.message;
  say('message', p.message);
  let text = '';
  let part = 0;
  if (p.state === 'gathering') {
    text = `${p.joined} of ${counted(p.expected, 'client')} ${p.expected === 1 ? 'has' : 'have'} joined.`;
    part = p.expected ? p.joined / p.expected : 0;
  } else if (p.state === 'done') {
    text = `Done: ${counted(p.round, 'round')}.`;
    part = 1;
  } else if (p.state === 'stopped') {
    text = `Stopped after ${counted(p.round, 'round')}, in phase ${p.phase + 1} of ${latest.phases.length}. ` +
           'The command that started it goes on where it stopped.';
  } else if (p.state === 'failed') {
    text = `Failed after ${counted(p.round, 'round')}, in phase ${p.phase + 1} of ${latest.phases.length}.`;
  } else {
    const of = p.rounds_in_phase ? ` of ${p.rounds_in_phase}` : '';
    text = `Phase ${p.phase + 1} of ${latest.phases.length}, round ${p.round_in_phase}${of}; ` +
           `${p.reports} of ${p.sampled} reports`;
    text += p.seconds_left === null ? '.' : `; ${duration(p.seconds_left)} left in this phase.`;
    part = p.rounds_in_phase ? p.round_in_phase / p.rounds_in_phase : 0;
  }
  say('progress-text', text);
  find('bar').value = part;
  const items = latest.phases.map((phase, i) => {
    const item = document.createElement('li');
    const past = p.state === 'done' || (p.state !== 'gathering' && i < p.phase);
    const now = p.state === 'running' && i === p.phase;
    item.textContent = `${phase}${past ? ' ✓' : now ? ' …' : ''}`;
    if (now) item.setAttribute('aria-current', 'step');
    return item;
  });
  find('phases').replaceChildren(...items);
}

function showVerdict() {
  const verdict = latest.verdict;
  find('verdict').className = `verdict ${verdict ? verdict.verdict : ''}`;
  say('verdict', verdict ? verdict.sentence : `No verdict yet: ${latest.no_verdict}.`);
  const beside = verdict ? [...verdict.trained.map((one) => one.text), verdict.who_pays, ...verdict.warnings] : [];
  find('warnings').replaceChildren(...beside.filter((text) => text).map((text) => {
    const item = document.createElement('li');
    item.textContent = text;
    return item;
  }));
  find('evidence-box').hidden = !verdict || verdict.evidence.length === 0;
  find('release-box').hidden = !verdict || verdict.releases.length === 0;
  if (!verdict) return;
  fill('release', [' H', ' difference', ' 95 % from', ' to', ' in standard errors', ' efficiency', ' lost', ' clients that lose', 'verdict:'],
       verdict.releases.map((r) => [r.h, r.difference, r.interval_low, r.interval_high, r.difference_in_standard_errors,
                                    r.efficiency, r.lost, r.losers, r.verdict]));
  fill('evidence', [' H', ' loss gap', ' share lost', ' in standard errors', ' ‖w_H − w*‖²', ` ${title('unbiased_drift_squared')}`,
                    ` ${title('drift_bound')}`, 'verdict:'],
       verdict.evidence.map((e) => [e.h, e.gap, e.lost, e.gap_in_standard_errors, e.distance_squared,
                                    e.unbiased_drift_squared, e.drift_bound, e.verdict]));
}

function showProbes() {
  const select = find('probe');
  if (select.options.length !== run.probes.length) {
    select.replaceChildren(...run.probes.map((probe, i) => {
      const option = document.createElement('option');
      option.value = String(i);
      option.textContent = `${probe.point}, round ${probe.round}, ${counted(probe.clients, 'client')}`;
      return option;
    }));
  }
  const index = chosenProbe ?? run.probes.length - 1;
  if (run.probes.length) select.value = String(index);
  const probe = run.probes[index];
  find('probe-choice').hidden = !probe;
  find('drift-h-none').hidden = Boolean(probe);
  Charts.driftOverSteps(probe);
  fill('drift-h-table', [' H', ` ${title('unbiased_drift_squared')}`, ' 95 % from', ' to', ` ${title('drift_bound')}`,
                         ` ${title('classic_bound')}`],
       (probe ? probe.steps : []).map((s) => [s.h, s.unbiased_drift_squared, s.interval_low,
                                              s.interval_high, s.drift_bound, s.classic_bound]));
}

function showRounds() {
  Charts.driftOverRounds(run.rounds);
  Charts.loss(run.rounds, latest.run.final_loss, run.evaluations);
  const last = run.rounds[run.rounds.length - 1];
  find('drift-r-none').hidden = Boolean(last);
  // A round measures the loss of the model that it starts from.
  const now = latest.run.final_loss || (last && {loss: last.loss, rounds: last.round - 1});
  say('loss-now', now ? `Training loss ${number(now.loss, 6)} after ${counted(now.rounds, 'round')}.` : 'No training round yet.');
  if (now) find('loss-now').dataset.value = String(now.loss);
  fill('rounds-table', [' round', ' H', ' loss', ` ${title('unbiased_drift_squared')}`, ` ${title('drift_bound')}`, ' reports', ' seconds'],
       run.rounds.slice(-20).reverse().map((r) => [r.round, r.local_steps || '–', r.loss, r.unbiased_drift_squared,
                                                   r.drift_bound, r.reports, r.seconds]));
}

function testText(loss, accuracy, majority, auc) {
  const parts = [];
  if (loss !== null) parts.push(`loss ${number(loss, 6)}`);
  if (accuracy !== null) parts.push(`accuracy ${percent(accuracy)}` + (majority ? ` (most frequent class: ${percent(majority)})` : ''));
  if (auc) parts.push(`AUC ${number(auc)}`);
  return parts.join(', ');
}

function showEvaluations() {
  Charts.accuracy(run.evaluations);
  const last = run.evaluations[run.evaluations.length - 1];
  const parts = [];
  if (last && last.test_examples > 0) {
    parts.push(`Test ${testText(last.test_loss, last.accuracy, last.majority_accuracy, last.auc)} on ` +
               counted(last.test_examples, 'example') +
               (last.test_clients ? ` of ${last.test_clients} of ${counted(last.reports, 'client')}` : '') + '.');
  }
  if (last && last.central_examples > 0) {
    parts.push(`Central test ${testText(last.central_loss, last.central_accuracy, last.central_majority_accuracy, last.central_auc)} on ` +
               `${counted(last.central_examples, 'example')}.`);
  }
  say('accuracy-now', !last ? 'No evaluation yet.' : parts.length ? parts.join(' ') : 'No client has test data.');
  fill('evaluations-table', [' rounds of training', ' test loss', ' accuracy', ' most frequent class', ' AUC', ' examples', ' clients'],
       run.evaluations.map((e) => [e.trained_rounds, e.test_loss, e.accuracy, e.majority_accuracy || null, e.auc || null,
                                   e.test_examples, e.test_clients]));
  const spread = last ? last.percentiles : [];
  fill('percentiles-table', [' of the clients, %', ' have accuracy at most', ' have test loss at most'],
       spread.map((one) => [one.percent, one.accuracy, one.loss]));
}

// Measures that have no chart above, each in a chart of its own: [{id, title, about, over, points}].
function otherMeasures() {
  const lists = [
    {records: run.rounds, x: (r) => r.round - 1,
     drawn: ['loss', 'average_drift_squared', 'unbiased_drift_squared', 'drift_bound']},
    {records: run.evaluations.filter((e) => e.trained_rounds !== null), x: (r) => r.trained_rounds,
     drawn: ['accuracy', 'central_accuracy', 'test_loss', 'majority_accuracy', 'central_majority_accuracy']},
  ];
  const metrics = new Set(run.rounds.flatMap((r) => Object.keys(r).filter((key) => key.startsWith('metric/'))));
  const all = [...measures, ...[...metrics].sort().map((name) => ({
    name, title: `Metric ${name.slice(7)}`, about: 'Weighted mean of what the clients reported under this name.'}))];
  const found = [];
  lists.forEach((list, k) => {
    for (const {name, title, about} of all) {
      if (list.drawn.includes(name)) continue;
      const points = list.records.map((r, i) => ({x: list.x(r, i), y: r[name] ?? null}))
                         .filter((p) => p.y !== null);
      // Zero all along is what rounds have that did not measure it.
      if (!points.some((p) => p.y !== 0)) continue;
      found.push({id: `measure-${k}-${name}`, title: k ? `${title}, evaluations` : title, about,
                  over: 'rounds of FedAvg', points});
    }
  });
  return found;
}

function measureSection(one) {
  const section = document.createElement('section');
  const title = document.createElement('h2');
  const card = document.createElement('div');
  const about = document.createElement('p');
  const box = document.createElement('div');
  const canvas = document.createElement('canvas');
  section.id = `${one.id}-section`;
  title.textContent = one.title;
  card.className = 'card';
  about.textContent = one.about;
  box.className = 'chart';
  canvas.id = one.id;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `${one.title} over ${one.over}`);
  box.append(canvas);
  card.append(about, box, Charts.scaleSwitch(one.id));
  section.append(title, card);
  return section;
}

// Drawn while they are in view only: there may be many.
function showMeasures() {
  const found = otherMeasures();
  find('measures-box').hidden = found.length === 0;
  say('measures-text', `Other measures: ${found.map((one) => one.title.toLowerCase()).join(', ')}`);
  if (!find('measures-box').open) return;
  const shown = new Set(found.map((one) => `${one.id}-section`));
  for (const section of find('measures').children) section.hidden = !shown.has(section.id);
  for (const one of found) {
    if (!find(one.id)) find('measures').append(measureSection(one));
    Charts.measure(one.id, one.title, one.over, one.points);
  }
}

function showClients() {
  const over = !latest.live || latest.progress.state === 'done' || latest.progress.state === 'failed';
  const away = (c) => !over && c.state === 'away';
  const known = run.clients.filter(Boolean);
  const refused = known.filter((c) => c.refusals > 0 || c.state === 'quarantined');
  say('clients-text', known.length === 0 ? 'No client has joined yet.' : counted(latest.clients_total, 'client') +
      (over ? '' : `, ${latest.progress.joined} connected`) +
      (!over && latest.progress.waiting ? `, ${latest.progress.waiting} wait to take part` : '') + (refused.length ? `, ${refused.length} refused at least once` : '') +
      (known.length < latest.clients_total ? `; the first ${known.length} are listed` : '') + '.');
  // Those with trouble first.
  const order = [...known].sort((a, b) => (b.refusals - a.refusals) ||
      (over ? 0 : (b.state !== 'connected') - (a.state !== 'connected')) || (a.index - b.index));
  const state = (c) => {
    if (c.state === 'quarantined') return {text: c.state, className: 'trouble'};
    if (over) return '–';
    const since = c.away_since ? ` since ${time(c.away_since)}` : '';
    return away(c) ? {text: `away${since}`, className: 'trouble'} : {text: c.state, className: 'well'};
  };
  fill('clients', ['client', 'state', ' examples', ' last report, round', ' refusals', 'reason'],
       order.slice(0, kRowsShown).map((c) => [c.id, state(c), c.examples, c.last_report || null, c.refusals, c.reason]));
}

function showEvents() {
  say('events-text', run.events.length ? '' : 'Nothing has happened yet.');
  fill('events', ['time', 'what:', 'who', 'details'], run.events.slice(-kRowsShown).reverse().map((e) =>
    [time(e.time), {text: e.kind, className: e.trouble ? 'trouble' : ''}, e.subject, e.text]));
}

function show() {
  redraw = 0;
  if (!latest) return;
  showProgress();
  showVerdict();
  showProbes();
  showRounds();
  showEvaluations();
  showMeasures();
  showClients();
  showEvents();
  document.body.dataset.round = String(latest.progress.round);
}

function connection(text, kind) {
  say('connection', text);
  find('connection').className = `badge ${kind}`;
}

function follow() {
  const source = new EventSource(`events${lastId ? `?after=${encodeURIComponent(lastId)}` : ''}`);
  source.onopen = () => connection('live', 'live');
  source.onmessage = (message) => {
    lastId = message.lastEventId;
    take(JSON.parse(message.data));
    const words = latest.live ? 'live' : latest.progress.state === 'stopped' ? 'stopped run' : 'finished run';
    if (!ended) connection(words, latest.live ? 'live' : '');
  };
  source.addEventListener('end', () => {
    ended = true;
    source.close();
    connection('the server has ended', '');
    if (latest) say('again', `Open it again: leeway dashboard ${latest.directory}`);
  });
  source.onerror = () => {
    if (ended) return;
    connection('connection lost, trying again', 'lost');
    // The browser tries again by itself unless the server refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  };
}

find('probe').addEventListener('change', (event) => {
  chosenProbe = Number(event.target.value);
  show();
});
find('measures-box').addEventListener('toggle', show);
for (const id of ['drift-h', 'drift-r', 'loss', 'accuracy']) find(id).parentElement.after(Charts.scaleSwitch(id));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
follow();
