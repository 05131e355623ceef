// The metrics of a training as columns over epochs, steps or time. Data only; charts.js draws it.

const OWN = 'own-';

/** Stores columns over one ascending list of epochs, with null where a metric was not measured. */
export class MetricStore {
  /**
   * `charts` are those of the training: {id, metrics, percent}. Metrics on none of them, such as the scalars of a
   * network, have charts of their own: those that start with the same name before a slash share one.
   */
  constructor(charts) {
    this.charts = charts;
    this.clear();
  }

  /** The chart of a metric: the first one with one of its words in the name, or one of its own. */
  chartOf(name) {
    const known = this.charts.find(({ metrics }) => metrics.some((word) => name.toLowerCase().includes(word)));
    return known ?? { id: OWN + name.split('/')[0], title: name.split('/')[0], isOwn: true };
  }

  /** The charts of metrics that are on no other chart. */
  get ownCharts() {
    const own = [...this.columns.values()].map(({ name }) => this.chartOf(name)).filter(({ isOwn }) => isOwn);
    return [...new Map(own.map((chart) => [chart.id, chart])).values()];
  }

  clear() {
    this.epochs = [];
    this.steps = [];
    this.seconds = [];
    this.clock = null;
    this.columns = new Map();
  }

  /** The ascending positions of the rows on an axis: 'epoch', 'step' or 'time' (in seconds of training). */
  positions(axis) {
    return { epoch: this.epochs, step: this.steps, time: this.seconds }[axis];
  }

  /** Whether the positions on `axis` are known. */
  has(axis) {
    const positions = this.positions(axis);
    return positions.every((position) => position !== null) && (axis !== 'time' || positions.length < 2 || positions.at(-1) > 0);
  }

  /** The position of `epoch` on `axis`, between those of the rows. */
  positionOf(epoch, axis) {
    if (axis === 'epoch' || !this.epochs.length) return epoch;
    const positions = this.positions(axis);
    const next = this.epochs.findIndex((item) => item >= epoch);
    if (next < 0) return positions.at(-1);
    if (next === 0 || this.epochs[next] === epoch) return positions[next];
    const share = (epoch - this.epochs[next - 1]) / (this.epochs[next] - this.epochs[next - 1]);
    return positions[next - 1] + share * (positions[next] - positions[next - 1]);
  }

  /** The curves of a chart: the positions `xs` of all rows on `axis`, and the series. */
  curves(chart, axis) {
    return { xs: this.positions(axis), series: this.series(chart) };
  }

  /** Replaces the contents by the server's history: {clock, train: {epoch, step, seconds, values}, val: …}. */
  load(history) {
    this.clear();
    this.clock = history.clock ?? null;
    const stages = ['train', 'val'].filter((stage) => history[stage]);
    this.epochs = [...new Set(stages.flatMap((stage) => history[stage].epoch))].sort((a, b) => a - b);
    this.steps = new Array(this.epochs.length).fill(null);
    this.seconds = new Array(this.epochs.length).fill(null);
    const places = new Map(this.epochs.map((epoch, place) => [epoch, place]));
    for (const stage of stages) {
      const { epoch: epochs, step = [], seconds = [] } = history[stage];
      epochs.forEach((epoch, row) => this.locate(places.get(epoch), step[row], seconds[row]));
      for (const [name, values] of Object.entries(history[stage].values)) {
        const column = this.column(stage, name);
        values.forEach((value, row) => (column[places.get(epochs[row])] = this.drawn(name, value)));
      }
    }
    let latest = 0;
    this.seconds = this.seconds.map((seconds) => (seconds === null ? null : (latest = Math.max(latest, seconds))));
  }

  /** Adds rows {stage, epoch, step, at, values}. Adding a row twice changes nothing. */
  add(rows) {
    for (const { stage, epoch, step, at, values } of rows) {
      const place = this.place(epoch);
      if (at !== undefined) this.clock ??= at;
      this.locate(place, step, at === undefined ? undefined : at - this.clock);
      for (const [name, value] of Object.entries(values)) this.column(stage, name)[place] = this.drawn(name, value);
    }
  }

  /** The columns of a chart as [{key, name, stage, values}], training first. */
  series(chart) {
    return [...this.columns.values()]
      .filter(({ name }) => this.chartOf(name).id === chart)
      .sort((a, b) => a.name.localeCompare(b.name) || a.stage.localeCompare(b.stage));
  }

  /** The latest value whose name `matches` accepts, or null. */
  last(stage, matches) {
    for (const column of this.columns.values()) {
      if (column.stage !== stage || !matches(column.name)) continue;
      const value = column.values.findLast((item) => item !== null);
      if (value !== undefined) return value;
    }
    return null;
  }

  // Accuracy is a fraction in messages and a percentage on the page.
  drawn(name, value) {
    if (value === null || value === undefined) return null;
    return this.chartOf(name).percent ? value * 100 : value;
  }

  column(stage, name) {
    const key = `${name} ${stage}`;
    if (!this.columns.has(key)) this.columns.set(key, { key, name, stage, values: new Array(this.epochs.length).fill(null) });
    return this.columns.get(key).values;
  }

  // The validation of a step ends later than the step itself; the first time counts.
  locate(place, step, seconds) {
    this.steps[place] ??= step ?? null;
    if (seconds !== undefined) this.seconds[place] ??= Math.max(seconds, this.seconds[place - 1] ?? 0);
  }

  // Rows arrive in order, so search from the end.
  place(epoch) {
    let at = this.epochs.length;
    while (at > 0 && this.epochs[at - 1] > epoch) at -= 1;
    if (at > 0 && this.epochs[at - 1] === epoch) return at - 1;
    this.epochs.splice(at, 0, epoch);
    this.steps.splice(at, 0, null);
    this.seconds.splice(at, 0, null);
    for (const { values } of this.columns.values()) values.splice(at, 0, null);
    return at;
  }
}

/** The {title, chart} of a metric in a chart of several models, {store, titles}, of which some may be of kinds without it. */
export function sharedChart(models, name) {
  const charts = models.map(({ store }) => store.chartOf(name));
  const chart = charts.find(({ isOwn }) => !isOwn) ?? charts[0];
  const isAlone = chart.metrics?.length === 1 && chart.metrics[0] === name;
  const known = models.map(({ titles }) => titles[name]).find(Boolean) ?? (isAlone && chart.title);
  return { title: known || name[0].toUpperCase() + name.slice(1).replaceAll('_', ' '), chart };
}
