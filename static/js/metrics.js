// The metrics of a training as columns over epochs. Data only; charts.js draws it.

const RATE = { id: 'rate', metrics: ['learning_rate'] };
const SPEED = { id: 'speed', metrics: ['images_per_second'] };
const LOSS = { id: 'loss', metrics: [''] };

/** Stores columns over one ascending list of epochs, with null where a metric was not measured. */
export class MetricStore {
  /** `charts` are those of the model's kind: {id, metrics, percent}. Metrics on none of them are drawn with the loss. */
  constructor(charts = []) {
    this.charts = [RATE, SPEED, ...charts, LOSS];
    this.clear();
  }

  /** The chart of a metric: the first one with one of its words in the name. */
  chartOf(name) {
    return this.charts.find(({ metrics }) => metrics.some((word) => name.toLowerCase().includes(word)));
  }

  clear() {
    this.epochs = [];
    this.columns = new Map();
  }

  /** Replaces the contents by the server's history: {train: {epoch, values}, val: …}. */
  load(history) {
    this.clear();
    const stages = ['train', 'val'].filter((stage) => history[stage]);
    this.epochs = [...new Set(stages.flatMap((stage) => history[stage].epoch))].sort((a, b) => a - b);
    const places = new Map(this.epochs.map((epoch, place) => [epoch, place]));
    for (const stage of stages) {
      for (const [name, values] of Object.entries(history[stage].values)) {
        const column = this.column(stage, name);
        values.forEach((value, row) => (column[places.get(history[stage].epoch[row])] = this.drawn(name, value)));
      }
    }
  }

  /** Adds rows {stage, epoch, values}. Adding a row twice changes nothing. */
  add(rows) {
    for (const { stage, epoch, values } of rows) {
      const place = this.place(epoch);
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

  // Rows arrive in order, so search from the end.
  place(epoch) {
    let at = this.epochs.length;
    while (at > 0 && this.epochs[at - 1] > epoch) at -= 1;
    if (at > 0 && this.epochs[at - 1] === epoch) return at - 1;
    this.epochs.splice(at, 0, epoch);
    for (const { values } of this.columns.values()) values.splice(at, 0, null);
    return at;
  }
}
