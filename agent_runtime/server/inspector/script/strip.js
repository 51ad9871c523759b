// All steps of a thread on one canvas: what each prompt was made of, what it cost, and what happened.
import {byId, int, percent, short, usd} from "./dom.js";
import {chosenStep, go, inPane, opened, place} from "./place.js";
import {BANDS, FLAG, NAMES} from "./words.js";

const LEFT = 40, COST = 22, MARKS = 14, ALL = 16, FEWEST = 5, DRAG = 6;
const TICKS = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];

export class Strip {
  // Takes the strip that stands in the document.
  constructor(thread) {
    this.thread = thread;
    this.plot = byId("plot");
    this.canvas = this.plot.firstElementChild;
    this.base = document.createElement("canvas");
    this.hover = this.drag = this.down = null;
    this.figures = Object.fromEntries([...byId("readout").querySelectorAll("[data-f]")].map(node => [node.dataset.f, node]));
    for (const name of BANDS) this.figures[name].parentNode.onclick = () => this.showBand(name);
    this.figures.zoom.onclick = () => go({z: null});
    this.listen();
  }

  get range() {
    const n = this.thread.count;
    if (!place.z) return [0, n];
    const to = Math.min(place.z[1], n), from = Math.max(0, Math.min(place.z[0] - 1, to - FEWEST));
    return [from, to];
  }

  // The steps changed, or the size, or the colours: draw everything again.
  renew() { this.drawn = null; this.frame(); }

  frame() {
    this.pending ||= requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.thread.count) return;
    const [from, to] = this.range, key = [from, to, width, innerHeight, devicePixelRatio, this.thread.count].join();
    if (key !== this.drawn) {
      this.measure(width, from, to);
      this.drawBase();
      this.drawn = key;
    }
    this.drawOver();
    this.read();
  }

  measure(width, from, to) {
    const small = innerWidth < 768, ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    this.height = small ? 64 : innerHeight < 620 ? 80 : 118;
    this.over = small ? 0 : ALL;
    this.ratio = ratio;
    const height = this.height + COST + MARKS + this.over;
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.canvas.style.setProperty("height", height + "px");
    const known = {};
    this.color = name => known[name] ??= style.getPropertyValue("--" + name).trim();
    Object.assign(this, {from, to, width: width - LEFT, step: (width - LEFT) / (to - from), small});
  }

  x(i) { return LEFT + (i - this.from) * this.step; }

  drawBase() {
    const c = this.base.getContext("2d"), {from, to, thread} = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    let top = 1, most = 1;
    for (let i = from; i < to; i++) {
      top = Math.max(top, thread.prompt(i));
      most = Math.max(most, thread.steps.cost[i]);
    }
    top *= 1.06;
    c.font = "12px system-ui, sans-serif";
    c.textAlign = "right";
    c.textBaseline = "middle";
    const y = v => this.height - v / top * (this.height - 12), bottom = this.height + COST;
    const tick = TICKS.find(t => top / t <= (this.small ? 2.5 : 4)) || 2e6, ink = this.color("ink2"), line = this.color("line");
    for (let v = 0; v < top; v += tick) {
      c.fillStyle = line;
      c.fillRect(LEFT, y(v), this.width, 1);
      c.fillStyle = ink;
      c.fillText(short(v).replace(".0", ""), LEFT - 6, Math.max(7, y(v)));
    }
    const bands = BANDS.map(name => [this.color("b-" + name), thread.steps[name]]);
    // One column a pixel at most: of several steps the largest prompt and the highest cost, so that no peak is lost.
    const columns = Math.min(to - from, Math.floor(this.width));
    for (let k = 0; k < columns; k++) {
      const [a, b] = [k, k + 1].map(n => from + Math.floor(n * (to - from) / columns));
      let i = a, paid = 0;
      for (let j = a; j < b; j++) {
        if (thread.prompt(j) > thread.prompt(i)) i = j;
        paid = Math.max(paid, thread.steps.cost[j]);
      }
      this.column(c, i, LEFT + k * this.width / columns, this.width / columns, y, bands);
      c.fillStyle = ink;
      const h = paid / most * (COST - 5);
      c.fillRect(LEFT + k * this.width / columns, bottom - h, Math.max(0.7, this.width / columns - 0.5), h);
    }
    c.fillText(this.small ? "$" : "cost", LEFT - 6, bottom - 7);
    this.drawActivations(c, bottom);
    this.drawMarks(c, bottom + 8);
    if (this.over) this.drawAll(c, bottom + MARKS + 2);
  }

  // Pale is what was read from the cache; full colour was paid at the full price.
  column(c, i, x, width, y, bands) {
    const gap = width >= 5 ? 1 : -0.5, cached = this.thread.steps.cached[i];
    let low = 0;
    for (const [color, sizes] of bands) {
      const high = low + Math.max(0, sizes[i]), cut = Math.min(Math.max(cached, low), high);
      c.fillStyle = color;
      if (cut > low) {
        c.globalAlpha = 0.42;
        c.fillRect(x, y(cut), width - gap, y(low) - y(cut));
        c.globalAlpha = 1;
      }
      if (high > cut) c.fillRect(x, y(high), width - gap, Math.max(1, y(cut) - y(high)));
      low = high;
    }
  }

  drawActivations(c, bottom) {
    const {activation} = this.thread.steps, dense = (activation.at(-1) - activation[0]) / this.thread.count / this.step > 0.1;
    c.strokeStyle = c.fillStyle = this.color("ink");
    c.globalAlpha = 0.7;
    for (let i = Math.max(1, this.from), last = -9; i < this.to; i++) {
      if (!this.thread.changed(i)) continue;
      const x = Math.round(this.x(i));
      if (x - last < 2) continue;
      last = x;
      if (dense) { c.fillRect(x, 0, 1, 5); continue; }
      dashed(c, x + 0.5, 4, bottom, 2);
      trace(c, [[x - 4, 0], [x + 5, 0], [x + 0.5, 6]]).fill();
    }
    c.globalAlpha = 1;
  }

  // Each kind has a shape of its own: colour alone says nothing.
  drawMarks(c, y) {
    c.lineWidth = 1.5;
    for (let i = this.from; i < this.to; i++) {
      // Nearly all steps have none.
      const kind = this.thread.steps.flags[i] && markOf(this.thread, i);
      if (!kind) continue;
      const x = Math.min(this.x(i) + this.step / 2, LEFT + this.width - 5);
      c.fillStyle = c.strokeStyle = this.color(kind === "error" ? "danger" : kind === "question" ? "warn" : "ink");
      if (kind !== "question" && this.step * 8 < 3) c.fillRect(x, y - 3, 1, 6);
      else if (kind === "error") {
        trace(c, [[x - 3, y - 3], [x + 3, y + 3]]).stroke();
        trace(c, [[x + 3, y - 3], [x - 3, y + 3]]).stroke();
      } else if (kind === "question") trace(c, [[x, y - 5], [x + 5, y], [x, y + 5], [x - 5, y]]).fill();
      else if (kind === "steered") trace(c, [[x - 4, y - 4], [x + 4, y], [x - 4, y + 4]]).fill();
      else c.fillRect(x - 3.5, y - 3.5, 7, 7);
    }
    c.lineWidth = 1;
  }

  drawAll(c, y) {
    const n = this.thread.count;
    let peak = 1;
    for (let i = 0; i < n; i++) peak = Math.max(peak, this.thread.prompt(i));
    c.fillStyle = this.color("sunken");
    c.fillRect(LEFT, y, this.width, ALL - 3);
    c.fillStyle = this.color("ink2");
    c.fillText("all", LEFT - 6, y + 6);
    c.globalAlpha = 0.55;
    for (let x = 0; x < this.width; x += 2) {
      const h = this.thread.prompt(Math.floor(x * n / this.width)) / peak * (ALL - 5);
      c.fillRect(LEFT + x, y + ALL - 3 - h, 1.4, h);
    }
    c.globalAlpha = 1;
    if (!place.z) return;
    c.strokeStyle = this.color("accent");
    c.lineWidth = 2;
    c.strokeRect(LEFT + this.from * this.width / n, y, Math.max(4, (this.to - this.from) * this.width / n), ALL - 4);
    c.lineWidth = 1;
  }

  // What moves with the pointer and the selection, over the copy of the rest.
  drawOver() {
    const c = this.canvas.getContext("2d"), bottom = this.height + COST, middle = i => Math.round(this.x(i) + this.step / 2);
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.base, 0, 0);
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const chosen = chosenStep(this.thread.count), shown = i => i >= this.from && i < this.to;
    c.strokeStyle = c.fillStyle = this.color("accent");
    if (place.tab === "compare" && place.with !== null && shown(place.with - 1)) {
      dashed(c, middle(place.with - 1), 0, bottom, 4);
    }
    if (shown(chosen)) {
      c.fillRect(middle(chosen) - 1, 0, 2, bottom);
      c.fillRect(middle(chosen) - 4, bottom - 2, 8, 4);
    }
    if (this.drag) {
      const [a, b] = this.drag.map(i => this.x(i)).sort((p, q) => p - q);
      c.globalAlpha = 0.2;
      c.fillRect(a, 0, b - a, bottom);
    }
    if (this.hover !== null && shown(this.hover)) {
      c.globalAlpha = 0.5;
      c.fillStyle = this.color("ink");
      c.fillRect(middle(this.hover), 0, 1, bottom);
    }
    c.globalAlpha = 1;
  }

  showBand(name) {
    opened.add(name);
    go({step: (this.hover ?? chosenStep(this.thread.count)) + 1, tab: "prompt", pane: inPane("prompt")});
    byId("sec-" + name)?.scrollIntoView({block: "start"});
  }

  read() {
    const t = this.thread, chosen = chosenStep(t.count), at = Math.min(this.hover ?? chosen, t.count - 1), {cost, cached, activation} = t.steps;
    const set = (name, text) => { if (this.figures[name].textContent !== text) this.figures[name].textContent = text; };
    set("step", int(at + 1));
    t.bands(at).forEach((size, k) => set(BANDS[k], short(size)));
    set("cached", percent(cached[at], t.prompt(at)));
    set("cost", usd(cost[at]));
    set("activation", `activation ${activation[at]}`);
    set("zoom", place.z ? `Steps ${place.z.join("–")} · show all` : "");
    const parts = t.bands(chosen).map((size, k) => `${NAMES[BANDS[k]]} ${int(size)}`).join(", ");
    const text = `Step ${chosen + 1} of ${t.count}: ${int(t.prompt(chosen))} tokens, ${percent(cached[chosen], t.prompt(chosen))} read from cache, ${parts}, ${usd(cost[chosen])}`;
    if (this.plot.ariaValueText !== text) Object.assign(this.plot, {ariaValueText: text, ariaValueNow: chosen + 1, ariaValueMax: t.count});
  }

  listen() {
    const plot = this.plot, at = event => {
      const x = event.clientX - plot.getBoundingClientRect().left - LEFT;
      return Math.max(this.from, Math.min(this.to - 1, this.from + Math.floor(x / this.step)));
    };
    plot.onpointermove = event => {
      this.hover = at(event);
      if (this.down && Math.abs(event.clientX - this.down.x) > DRAG) this.drag = [this.down.i, this.hover];
      this.frame();
    };
    plot.onpointerleave = () => { this.hover = null; this.frame(); };
    plot.onpointercancel = () => { this.down = this.drag = this.hover = null; this.frame(); };
    plot.onpointerdown = event => {
      if (event.button) return;
      this.down = {x: event.clientX, i: at(event)};
      plot.setPointerCapture(event.pointerId);
    };
    plot.onpointerup = event => {
      if (!this.down) return;
      const [a, b] = (this.drag || [0, 0]).toSorted((p, q) => p - q);
      this.down = this.drag = null;
      if (b - a >= FEWEST - 1) go({z: [a + 1, b + 1]});
      else go({step: at(event) + 1, msg: null});
    };
    plot.ondblclick = () => go({z: null});
    plot.onkeydown = event => {
      if (event.key === "Enter") byId("lscroll").querySelector(".sel")?.focus();
      const i = chosenStep(this.thread.count), by = event.shiftKey ? 10 : 1;
      const to = {ArrowLeft: i - by, ArrowDown: i - by, ArrowRight: i + by, ArrowUp: i + by, PageDown: i - 50, PageUp: i + 50, Home: 0, End: Infinity}[event.key];
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      this.choose(to);
    };
  }

  choose(i) { go({step: Math.max(0, Math.min(this.thread.count - 1, i)) + 1, msg: null}, true); }

  zoom(by) {
    const n = this.thread.count, [from, to] = this.range, size = Math.max(10, Math.round((to - from) * by));
    if (size >= n) return go({z: null}, true);
    const start = Math.max(0, Math.min(n - size, Math.round(chosenStep(n) - size / 2)));
    go({z: [start + 1, start + size]}, true);
  }
}

function trace(c, points) {
  c.beginPath();
  points.forEach(([x, y], k) => k ? c.lineTo(x, y) : c.moveTo(x, y));
  return c;
}

function dashed(c, x, from, to, size) {
  c.setLineDash([size, size]);
  trace(c, [[x, from], [x, to]]).stroke();
  c.setLineDash([]);
}

// The weightiest thing that happened at a step.
export function markOf(thread, i) {
  const flags = thread.steps.flags[i];
  return ["question", "error", "steered", "delegated"].find(name => flags & FLAG[name]) || null;
}
