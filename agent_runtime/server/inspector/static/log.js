// The log: a list of which only the rows in view exist. What is read stays where it is.
import {byId, clock, el, fill, int, short, usd} from "./dom.js";
import {chosenStep, go, inPane, opened, place, threadLink} from "./place.js";
import {file, get, getText} from "./service.js";
import {lastAtMost, pathOf} from "./thread.js";
import {FLAG, answerOf, causeOf, chip, hasFailed, subjectOf} from "./words.js";

const AHEAD = 300, ROLES = ["user", "assistant", "note"];
const WHO = {user: "User", steer: "You steered", note: "Note"};

export class Log {
  constructor(thread, toError) {
    this.thread = thread;
    this.toError = toError;
    this.rows = new Map();
    this.space = el("div.space");
    this.box = el("div.scroll", {id: "lscroll", role: "feed", "aria-label": "Messages", tabindex: 0}, this.space);
    this.pill = el("button.pill", {hidden: true, onclick: () => this.toEnd()});
    this.node = el("section.pane", {id: "log", "aria-label": "Log"}, this.header(), this.box, this.pill);
    this.follow = place.step === null && place.msg === null;
    this.seen = this.count = 0;
    this.height = new Float64Array(0);
    this.box.addEventListener("scroll", () => this.scrolled(), {passive: true});
    new ResizeObserver(() => this.resized()).observe(this.box);
  }

  header() {
    this.followButton = el("button.small.plain", {onclick: () => this.follow ? this.stopFollowing() : this.toEnd()}, "Follow");
    return el("header", el("h2.grow", "Log"), this.followButton,
      el("button.small.plain", {title: "Shift+E", onclick: () => this.toError(-1)}, "‹ error"), el("button.small.plain", {title: "E", onclick: () => this.toError(1)}, "error ›"));
  }

  // New nodes come at the end; rows keep their measured heights.
  renew() {
    const {nodes, activations} = this.thread, grown = new Float64Array(nodes.count);
    this.anchored = new Map(activations.slice(1).map(a => [a.anchor, a]));
    grown.set(this.height.subarray(0, Math.min(this.height.length, nodes.count)));
    for (let i = this.height.length; i < nodes.count; i++) grown[i] = this.guess(i);
    [this.height, this.count] = [grown, nodes.count];
    this.seen ||= this.thread.count;
    this.stack();
    if (this.follow) this.toEnd(); else this.draw();
    this.tell();
  }

  guess(i) {
    const {nodes} = this.thread;
    return 12 + 25 * nodes.calls[i] + (nodes.role[i] === 1 && nodes.calls[i] ? 12 : 42) + (this.anchored.has(nodes.node[i]) ? 30 : 0);
  }

  stack() {
    this.top = new Float64Array(this.count + 1);
    for (let i = 0; i < this.count; i++) this.top[i + 1] = this.top[i] + this.height[i];
  }

  find(y) { return Math.max(0, Math.min(this.count - 1, lastAtMost(this.top, y, this.count))); }

  draw() {
    const {box} = this, view = box.clientHeight;
    if (!view || !this.count) return;
    // Heights are guesses until rows are drawn: a few rounds until nothing moves any more.
    for (let round = 0; round < 8; round++) {
      const y = box.scrollTop, anchor = this.find(y), off = y - this.top[anchor];
      const from = this.find(y - AHEAD), to = this.find(y + view + AHEAD) + 1;
      this.drawRows(from, to);
      if (!this.measure()) break;
      this.place();
      const want = this.top[anchor] + off;
      if (Math.abs(box.scrollTop - want) > 0.5) box.scrollTop = want;
    }
    this.place();
    this.set = box.scrollTop;
  }

  // Something was loaded: rows have other heights now. What was gone to stays in view until the reader scrolls.
  loaded() {
    if (this.follow) this.toEnd();
    else if (this.goal) this.toSeq(this.goal);
    else this.draw();
  }

  drawRows(from, to) {
    const focused = document.activeElement;
    for (const [i, row] of this.rows) {
      if ((i < from || i >= to) && !row.contains(focused)) { row.remove(); this.rows.delete(i); }
    }
    for (let i = from; i < to; i++) {
      const node = this.thread.node(i), old = this.rows.get(i);
      if (old && old.made === node && old.questions === this.questionsOf(node)) continue;
      const row = this.row(i, node);
      if (old) old.replaceWith(row);
      else this.space.insertBefore(row, this.after(i));
      this.rows.set(i, row);
    }
  }

  // Rows stand in the order of the branch, also for those who hear or tab through them.
  after(i) {
    let next = null, at = Infinity;
    for (const [k, row] of this.rows) if (k > i && k < at) [next, at] = [row, k];
    return next;
  }

  measure() {
    let moved = false;
    for (const [i, row] of this.rows) {
      const height = row.offsetHeight;
      if (height && Math.abs(height - this.height[i]) > 0.5) { this.height[i] = height; moved = true; }
    }
    if (moved) this.stack();
    return moved;
  }

  place() {
    for (const [i, row] of this.rows) {
      row.style.setProperty("transform", `translateY(${this.top[i]}px)`);
      this.mark(i, row);
    }
    this.space.style.setProperty("height", this.top[this.count] + "px");
  }

  get chosen() { return place.msg ?? this.thread.steps.node[chosenStep(this.thread.count)]; }

  // What depends on the selection, without making the row again.
  mark(i, row) {
    const seq = this.thread.nodes.node[i], chosen = seq === this.chosen;
    const where = this.thread.whereAt(seq, chosenStep(this.thread.count)), rail = row.querySelector(".rail");
    row.classList.toggle("sel", chosen);
    row.tabIndex = chosen ? 0 : -1;
    if (chosen) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    row.setAttribute("aria-setsize", this.count);
    if (rail.title === where.text) return;
    rail.className = "rail " + where.kind;
    rail.title = where.text;
    rail.setAttribute("aria-label", where.text + ". Show where");
  }

  row(i, node) {
    const {nodes} = this.thread, seq = nodes.node[i], step = this.thread.stepOf(seq), flags = nodes.flags[i];
    const role = ROLES[nodes.role[i]], who = flags & FLAG.steered ? WHO.steer : WHO[role] || "", anchored = this.anchored.get(seq);
    const choose = () => go({msg: seq, step: step < 0 ? place.step : step + 1}, true);
    const row = el(`article.it.${role}${flags & FLAG.error ? ".err" : ""}`, {"aria-posinset": i + 1,
      "aria-label": `${step < 0 ? who : "Step " + (step + 1)}, message ${seq}`,
      onclick: event => { if (!event.target.closest("button,a,pre,textarea") && !String(getSelection())) choose(); }},
    el("div.g", el("span", {title: clock(nodes.at[i] / 1000)}, step < 0 ? node && node.source && who === "Note" ? node.source : who : int(step + 1)), el("span.hide", " #" + seq)),
    el("button.rail", {tabindex: -1, onclick: () => go({msg: seq, step: chosenStep(this.thread.count) + 1, tab: "prompt", pane: inPane("prompt")})}),
    node ? el("div.what", this.body(node)) : el("div.what.dim", {"aria-busy": "true"}, "…"),
    anchored && this.activationLine(anchored));
    [row.made, row.questions] = [node, this.questionsOf(node)];
    return row;
  }

  questionsOf(node) { return node ? this.thread.summary.questions.filter(q => q.node === node.seq && q.thread === this.thread.id).map(q => q.id + q.status).join() : ""; }

  body(node) {
    const more = node.chars > node.text.length, questions = this.thread.summary.questions.filter(q => q.node === node.seq && q.thread === this.thread.id);
    const say = node.text && el("div.say", {dir: "auto"}, node.text, more && "…");
    return [say, more && this.wholeButton(`nodes/${node.seq}/text`, node.chars, text => fill(say, text)),
      node.files.map(file => el("div.small.dim", "File: ", el("bdi", file.name || file.uri), ` · ${file.media_type}`)),
      node.calls.map(call => this.callRow(node, call)),
      questions.map(q => el("div.small.row.wrap", q.status === "open"
        ? [el("span.chip.waiting", "Waits for you"), el("button.link", {onclick: () => toQuestion()}, "Decide")]
        : [el("span.chip.succeeded", "Answered"), el("span", {dir: "auto"}, answerOf(q))])),
      node.siblings.length ? el("div.small.row.wrap.dim", "Also continued as", node.siblings.map(seq => el("button.link.small", {onclick: () => go({head: seq, step: null, msg: seq})}, "#" + seq))) : null];
  }

  // Texts beyond the first 2,000 characters come when they are asked for.
  wholeButton(rest, chars, show) {
    const button = el("button.link.small", {onclick: async () => {
      try { show(await getText(this.thread.path(rest))); button.remove(); } catch (error) { fill(button, error.message); }
      this.draw();
    }}, `Show all ${int(chars)} characters`);
    return button;
  }

  callRow(node, call) {
    const key = `${node.seq}/${call.index}`, box = el("div"), up = () => opened.has(key);
    const outcome = call.status !== "done" ? call.status : hasFailed(call) ? "✕ " + call.outcome
      : call.shown !== null && call.shown < call.chars ? `${short(call.shown)} of ${short(call.chars)} chars shown` : `${short(call.tokens)} tokens`;
    const show = () => {
      const name = el("b", (up() ? "▾ " : "▸ ") + call.tool);
      const head = el("button.call", {"aria-expanded": String(up()), onclick: () => {
        if (!opened.delete(key)) opened.add(key);
        show();
        this.draw();
        box.querySelector(".call").focus({preventScroll: true});
      }}, name, el("span.a.clip", el("bdi", subjectOf(call))), el(`span.o${hasFailed(call) ? ".error" : ""}`, outcome));
      fill(box, head, up() && this.inside(node, call));
    };
    show();
    return box;
  }

  inside(node, call) {
    const argument = name => call.arguments.find(a => a.name === name), [old, changed] = [["old", "old_text", "old_string"], ["new", "new_text", "new_string"]].map(names => names.map(argument).find(Boolean));
    const rest = call.arguments.filter(a => a !== old && a !== changed), result = el("pre.out", {tabindex: 0, dir: "auto", "aria-label": "Result"}, call.text);
    return [(call.runs || (call.run ? [call] : [])).map(one => this.childRun(one)),
      rest.length ? el("pre.out", {tabindex: 0, dir: "auto", "aria-label": "Arguments"}, rest.map(a => `${a.name}: ${a.text}${a.more ? " …" : ""}\n`)) : null,
      old && changed ? el("pre.out.diff", {tabindex: 0, "aria-label": "Change"}, el("del", old.text), el("ins", changed.text)) : null,
      call.arguments.some(a => a.more) ? el("a.small", {href: "api/inspector/" + this.thread.path(`nodes/${node.seq}/calls/${call.index}`, {part: "arguments"}), download: "arguments.json"}, "Download the arguments") : null,
      call.text ? result : null,
      call.chars > call.text.length ? this.wholeButton(`nodes/${node.seq}/calls/${call.index}`, call.chars, text => fill(result, text)) : null];
  }

  // A sub-agent's run, where it was called for: an interrupted call may have begun several.
  childRun(begun) {
    const run = this.thread.summary.tree.find(one => one.run === begun.run), box = el("div.sub"), link = el("a", {href: threadLink(begun.thread)}, "Open its thread");
    fill(box, run ? el("div.row.wrap", chip(run), el("span.num", `${run.agent} · ${int(run.steps)} steps · ${short(run.tokens)} tokens · ${usd(run.cost)}`), link) : link, run && run.detail ? el("div.dim", {dir: "auto"}, run.detail) : null);
    get(file ? pathOf(begun.thread, "nodes/0") : pathOf(begun.thread, "nodes", {from: 1, to: 200})).then(page => {
      for (const node of page.nodes.filter(one => one.role === "assistant")) {
        box.append(el("div", {dir: "auto"}, node.text, node.calls.map(one => el("div.mono.dim.clip", `${one.tool} ${subjectOf(one)}`))));
      }
      this.draw();
    }, () => {});
    return box;
  }

  activationLine(a) {
    const before = this.thread.activations[a.index - 1], left = a.left - (before ? before.left : 0);
    return el("div.actline", "▼", el("button", {onclick: () => {
      const step = this.thread.steps.activation.indexOf(a.id);
      if (step >= 0) go({step: step + 1, tab: "left", msg: null, pane: inPane("prompt")});
    }}, `Activation ${a.id}: ${causeOf(a)}. ${int(left)} messages gave way to observations`));
  }

  toSeq(seq) {
    const i = this.thread.position(seq), {box} = this;
    if (i < 0 || !box.clientHeight) return;
    this.goal = seq;
    for (let round = 0, moved = false; round < 5; round++) {
      const y = this.top[i], was = box.scrollTop;
      if (moved || y < was + 8 || y + Math.min(this.height[i], 120) > was + box.clientHeight - 8) {
        moved = true;
        box.scrollTop = Math.max(0, y - box.clientHeight / 3);
      }
      this.draw();
      if (Math.abs(box.scrollTop - was) < 1) break;
    }
    if (i < this.count - 1) this.stopFollowing();
  }

  toEnd() {
    this.follow = true;
    this.goal = null;
    this.seen = this.thread.count;
    for (let round = 0; round < 3; round++) {
      this.box.scrollTop = this.top[this.count];
      this.draw();
    }
    this.tell();
  }

  stopFollowing() { this.follow = false; this.tell(); }

  // Following ends with a scroll away from the end, and begins again there.
  scrolled() {
    const {box} = this, end = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    if (Math.abs(box.scrollTop - this.set) > 1) [this.follow, this.goal] = [this.follow && end, null];
    if (end) this.seen = this.thread.count;
    this.draw();
    this.tell();
  }

  resized() {
    const width = this.box.clientWidth;
    if (this.width && width && width !== this.width && this.count) {
      const anchor = this.find(this.box.scrollTop), off = this.box.scrollTop - this.top[anchor];
      for (let i = 0; i < this.count; i++) this.height[i] = this.guess(i);
      this.stack();
      this.box.scrollTop = this.top[anchor] + off;
    }
    this.width = width || this.width;
    if (this.count) this.loaded();
  }

  tell() {
    const more = this.thread.count - this.seen, live = this.thread.run && ["queued", "running"].includes(this.thread.run.status);
    this.pill.hidden = this.follow || more <= 0;
    this.pill.textContent = `${more} new ${more === 1 ? "step" : "steps"} ↓`;
    this.followButton.hidden = !live;
    this.followButton.setAttribute("aria-pressed", String(this.follow));
    this.followButton.textContent = this.follow ? "Following" : "Follow";
  }

  move(by) {
    const i = this.thread.position(this.chosen) + by, {node} = this.thread.nodes;
    if (i < 0 || i >= this.count) return;
    const step = this.thread.stepOf(node[i]);
    go({msg: node[i], step: step < 0 ? place.step : step + 1}, true);
    const row = this.rows.get(i);
    if (row) row.focus({preventScroll: true});
  }
}

export function toQuestion() {
  go({pane: inPane("side")});
  const card = byId("side").querySelector(".need");
  if (card) (card.querySelector("button,input,textarea") || card).focus();
}
