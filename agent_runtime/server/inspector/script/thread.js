// One thread as the page knows it: all steps as columns, the rest when it is looked at.
import {file, get, getTables} from "./service.js";

// An exported file has its messages in blocks of 200.
const WINDOW = file ? 200 : 50, AGAIN = 3000;

// The index of the last value that is at most `value`, or -1.
export function lastAtMost(values, value, count = values.length) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const indexOf = (values, value) => {
  const i = lastAtMost(values, value);
  return values[i] === value ? i : -1;
};

// The rows of `old` up to a node, then the new ones: an open exchange comes again until it is closed.
function joined(old, rows, after) {
  if (!old) return rows;
  const keep = lastAtMost(old.node, after) + 1, out = {count: keep + rows.count};
  for (const name of Object.keys(old)) {
    if (name === "count") continue;
    out[name] = new Float64Array(out.count);
    out[name].set(old[name].subarray(0, keep));
    out[name].set(rows[name], keep);
  }
  return out;
}

// Where data of a thread are: below the service's routes, or among the blocks of an exported file.
export function pathOf(id, rest, more = {}) {
  if (file) return (id === file.thread ? "" : `threads/${id}/`) + (rest || "thread");
  const q = new URLSearchParams(Object.entries(more).filter(([, value]) => value != null));
  return `threads/${encodeURIComponent(id)}${rest && "/" + rest}${q.size ? "?" + q : ""}`;
}

export class Thread {
  // `loaded` is called whenever something that was asked for has arrived.
  constructor(id, head, loaded) {
    Object.assign(this, {id, head, loaded, models: []});
    // Both by id, in the order in which they came to be.
    this.activations = new Map();
    this.observations = new Map();
    this.windows = new Map();
    this.wanted = new Map();
  }

  path(rest, more) { return pathOf(this.id, rest, {head: this.head, ...more}); }

  // Asks for what is new. Nothing that the page shows is dropped before its successor is there.
  async refresh() {
    const after = this.closed, whole = file || this.steps;
    const [rows, summary] = await Promise.all([getTables(this.path(whole ? "steps" : "opening", {after})), whole && get(this.path(""))]);
    const known = rows.reset ? {} : this;
    // Most steps bring no activation, and nothing else makes an observation count.
    if (this.fronted && rows.steps.count && !this.activations.has(rows.steps.activation.at(-1))) await this.readFront();
    Object.assign(this, {summary: rows.summary || summary, models: rows.models, closed: rows.head, steps: joined(known.steps, rows.steps, after), nodes: joined(known.nodes, rows.nodes, after)});
    if (rows.reset) {
      this.windows.clear();
      this.wanted.clear();
    } else if (rows.nodes.count && after !== undefined) this.outdate(this.position(rows.nodes.node[0]));
    for (const node of rows.last || []) this.window(this.position(node.seq)).nodes.set(node.seq, node);
  }

  // What stood before the raw messages of each prompt: the strip and the log are there without it.
  async readFront() {
    await Promise.all([this.readAll("activations"), this.readAll("observations")]);
    this.fronted = true;
  }

  outdate(position) {
    for (const window of this.windows.values()) if ((window.k + 1) * WINDOW > position) window.stale = true;
    const prompt = this.newest && this.wanted.get(this.promptPath(this.newest.id));
    if (prompt) prompt.stale = true;
  }

  // What came after the newest that is known.
  async readAll(kind) {
    const known = this[kind];
    for (let next = known.size ? Math.max(...known.keys()) : undefined; next !== null;) {
      const page = await get(this.path(kind, {after: next}));
      for (const one of page[kind]) if (!known.has(one.id)) known.set(one.id, Object.assign(one, {index: known.size}));
      next = page.next;
    }
  }

  get count() { return this.steps.count; }
  get run() { return this.summary.run; }
  get newest() { return [...this.activations.values()].at(-1); }

  prompt(i) { return this.steps.prompt[i] >= 0 ? this.steps.prompt[i] : Math.max(0, this.steps.counted[i]); }
  bands(i) { const s = this.steps; return [s.system[i], s.observed[i], s.constraints[i], s.state[i], s.raw[i]].map(n => Math.max(0, n)); }
  activationAt(i) { return this.activations.get(this.steps.activation[i]); }
  activationBefore(a) { return [...this.activations.values()][a.index - 1]; }
  changed(i) { return i > 0 && this.steps.activation[i] !== this.steps.activation[i - 1]; }
  position(seq) { return indexOf(this.nodes.node, seq); }
  stepOf(seq) { return indexOf(this.steps.node, seq); }
  // The first step whose prompt could hold a message.
  stepAfter(seq) { return lastAtMost(this.steps.node, seq) + 1; }
  // The messages of the branch from one to another, both included.
  between(first, last) {
    const {node} = this.nodes;
    return Array.from(node.subarray(lastAtMost(node, first - 1) + 1, lastAtMost(node, last) + 1));
  }

  window(position) {
    const k = Math.floor(position / WINDOW);
    if (!this.windows.has(k)) this.windows.set(k, {k, nodes: new Map(), failed: 0});
    return this.windows.get(k);
  }

  // The node at a position of the branch, if it is there; else its window is asked for.
  node(position) {
    const window = this.window(position), node = window.nodes.get(this.nodes.node[position]);
    if ((window.stale || !node && !window.whole) && !window.loading) this.readWindow(window);
    return node;
  }

  nodeOf(seq) {
    const at = this.position(seq);
    return at < 0 ? undefined : this.node(at);
  }

  async readWindow(window) {
    const {k} = window;
    Object.assign(window, {loading: true, stale: false});
    const seqs = this.nodes.node.subarray(k * WINDOW, (k + 1) * WINDOW), nodes = new Map();
    try {
      for (let from = seqs[0]; from != null;) {
        const page = await get(file ? this.path("nodes/" + k) : this.path("nodes", {from, to: seqs.at(-1)}));
        for (const node of page.nodes) {
          // A node that did not change stays the same object, so that its row is kept.
          const old = window.nodes.get(node.seq);
          nodes.set(node.seq, old && JSON.stringify(old) === JSON.stringify(node) ? old : node);
        }
        from = file ? null : page.next;
      }
    } catch (error) {
      window.stale = true;
      setTimeout(() => { window.loading = false; this.loaded(error); }, Math.min(8000, 500 * 2 ** ++window.failed));
      return;
    }
    Object.assign(window, {nodes, whole: true, loading: false, failed: 0});
    this.loaded();
  }

  // What could not be read is asked for again.
  retry() { for (const [key, {value}] of this.wanted) if (value instanceof Error) this.wanted.delete(key); }

  // Asked for once: undefined until it is there, a Problem if it could not be read.
  once(path) {
    const known = this.wanted.get(path);
    if (known && !known.stale) return known.value;
    const entry = {value: known?.value};
    this.wanted.set(path, entry);
    get(path).catch(error => {
      if (error.passes) setTimeout(() => { this.wanted.delete(path); this.loaded(); }, AGAIN);
      return error;
    }).then(value => { entry.value = value; this.loaded(); });
    return entry.value;
  }

  promptPath(activation) { return file ? this.path("prompt/" + activation) : this.path("prompt", {activation}); }

  // The parts of the prompt that a step's answer came from.
  partsAt(i) {
    const found = this.once(this.promptPath(this.steps.activation[i])), node = this.steps.node[i];
    return found?.parts ? found.parts.filter(part => part.node === null || part.node < node) : found;
  }

  details(activation) {
    if (file) return this.activations.get(activation);
    const page = this.once(this.path("activations", {ids: activation}));
    return page?.activations ? page.activations[0] : page;
  }

  observation(id) {
    const page = this.once(file ? this.path("observations/" + Math.floor((id - 1) / 100)) : this.path("observations", {ids: id}));
    return page?.observations ? page.observations.find(one => one.id === id) : page;
  }

  // The observations that a message stands in, from `id` down to level 0; null if in none.
  way(id, seq) {
    const one = this.observations.get(id);
    if (!one || seq < one.first || seq > one.last) return null;
    for (const part of one.parts) {
      const rest = this.way(part, seq);
      if (rest) return [id, ...rest];
    }
    return [id];
  }

  // How the prompt of a step has a message: for the rail of the log.
  whereAt(seq, i) {
    const own = this.steps.node[i], a = this.activationAt(i);
    if (seq >= own) return {kind: "future", text: seq === own ? "What the model answered at the selected step" : "Not yet said at the selected step"};
    if (!a) return {kind: this.fronted && "gone", text: "Unknown"};
    if (a.first === null || seq >= a.first) return {kind: "raw", text: "In the prompt as it was"};
    const by = a.observed.find(id => this.way(id, seq));
    if (seq === a.task) return {kind: "state", by, text: "Stands in the state note, as the task"};
    if (by) return {kind: "observed", by, text: `Stands in the prompt by observation o${by}`};
    return a.context.includes(seq) ? {kind: "raw", text: "In the prompt as context"} : {kind: "gone", text: "Not represented in this prompt"};
  }
}
