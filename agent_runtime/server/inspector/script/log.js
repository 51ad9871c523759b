// The log: a list of which only the rows in view exist. What is read stays where it is.
import {block, button, byId, clock, el, fill, int, plural, short, usd} from "./dom.js";
import {chosenStep, go, inPane, opened, place, threadLink, turn} from "./place.js";
import {file, get, getText} from "./service.js";
import {lastAtMost, pathOf} from "./thread.js";
import {FLAG, answerOf, causeOf, chip, hasFailed, isMoving, subjectOf} from "./words.js";

const AHEAD = 300, ROLES = ["user", "assistant", "note"];
const WHO = {user: "User", note: "Note"};

export class Log {
  // Takes the pane that stands in the document.
  constructor(thread) {
    this.thread = thread;
    this.rows = new Map();
    [this.box, this.pill, this.followButton] = ["lscroll", "pill", "follow"].map(byId);
    this.space = this.box.firstElementChild;
    this.following = place.step === null && place.msg === null;
    this.seen = this.count = 0;
    this.height = [];
    this.pill.onclick = () => this.toEnd();
    this.followButton.onclick = () => this.following ? this.stopFollowing() : this.toEnd();
    this.box.addEventListener("scroll", () => this.scrolled(), {passive: true});
    new ResizeObserver(() => this.resized()).observe(this.box);
  }

  // New nodes come at the end; rows keep their measured heights.
  renew() {
    this.count = this.thread.nodes.count;
    this.anchored = new Map([...this.thread.activations.values()].slice(1).map(a => [a.anchor, a]));
    this.fit(this.height);
    this.seen ||= this.thread.count;
    if (this.following) this.toEnd(); else this.draw();
    this.tell();
  }

  fit(known) {
    this.height = Float64Array.from({length: this.count}, (_, i) => known[i] ?? this.guess(i));
    this.stack();
  }

  guess(i) {
    const {role, calls, node} = this.thread.nodes;
    return 12 + 25 * calls[i] + (role[i] === 1 && calls[i] ? 12 : 42) + (this.anchored.has(node[i]) ? 30 : 0);
  }

  stack() {
    this.top = new Float64Array(this.count + 1);
    for (let i = 0; i < this.count; i++) this.top[i + 1] = this.top[i] + this.height[i];
    // Before the list is scrolled: else it would show its beginning first.
    this.space.style.setProperty("height", this.top[this.count] + "px");
  }

  find(y) { return Math.max(0, Math.min(this.count - 1, lastAtMost(this.top, y, this.count))); }

  draw() {
    const {box} = this, view = box.clientHeight;
    if (!view || !this.count) return;
    // Heights are guesses until rows are drawn: a few rounds until nothing moves any more.
    for (let round = 0; round < 8; round++) {
      const y = box.scrollTop, anchor = this.find(y), off = y - this.top[anchor];
      this.drawRows(this.find(y - AHEAD), this.find(y + view + AHEAD) + 1);
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
    if (this.following) this.toEnd();
    else if (this.goal) this.toSeq(this.goal);
    else this.draw();
  }

  drawRows(from, to) {
    for (const [i, row] of this.rows) {
      if ((i < from || i >= to) && !row.contains(document.activeElement)) { row.remove(); this.rows.delete(i); }
    }
    for (let i = from; i < to; i++) {
      const node = this.thread.node(i), old = this.rows.get(i);
      if (old && old.made === node && old.asked === this.askedKey(node)) continue;
      const row = this.row(i, node);
      if (old) old.replaceWith(row);
      else {
        // Rows stand in the order of the branch, also for those who hear or tab through them.
        const next = Math.min(...[...this.rows.keys()].filter(k => k > i));
        this.space.insertBefore(row, this.rows.get(next) || null);
      }
      this.rows.set(i, row);
    }
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
  }

  get chosen() { return place.msg ?? this.thread.steps.node[chosenStep(this.thread.count)]; }

  // What depends on the selection, without making the row again.
  mark(i, row) {
    const seq = this.thread.nodes.node[i], chosen = seq === this.chosen, where = this.thread.whereAt(seq, chosenStep(this.thread.count)), rail = row.querySelector(".rail");
    row.classList.toggle("sel", chosen);
    row.tabIndex = chosen ? 0 : -1;
    row.ariaCurrent = chosen ? "true" : null;
    row.ariaSetSize = this.count;
    if (rail.title === where.text) return;
    rail.className = "rail " + where.kind;
    rail.title = where.text;
    rail.ariaLabel = where.text + ". Show where";
  }

  choose(seq) {
    const step = this.thread.stepOf(seq);
    go({msg: seq, step: step < 0 ? place.step : step + 1}, true);
  }

  row(i, node) {
    const {nodes} = this.thread, seq = nodes.node[i], step = this.thread.stepOf(seq), flags = nodes.flags[i], role = ROLES[nodes.role[i]], anchored = this.anchored.get(seq);
    const who = flags & FLAG.steered ? "You steered" : WHO[role] || "";
    const row = el(`article.it.${role}${flags & FLAG.error ? ".err" : ""}`, {"aria-posinset": i + 1, "aria-label": `${step < 0 ? who : "Step " + (step + 1)}, message ${seq}`,
      onclick: event => { if (!event.target.closest("button,a,pre,textarea") && !String(getSelection())) this.choose(seq); }},
    el("div.g", el("span", {title: clock(nodes.at[i] / 1000)}, step >= 0 ? int(step + 1) : who === "Note" && node?.source || who), el("span.hide", " #" + seq)),
    button("", () => go({msg: seq, step: chosenStep(this.thread.count) + 1, tab: "prompt", pane: inPane("prompt")}), ".rail", {tabindex: -1}),
    node ? el("div.what", this.body(node)) : el("div.what.dim", {"aria-busy": "true"}, "…"), anchored && this.activationLine(anchored));
    return Object.assign(row, {made: node, asked: this.askedKey(node)});
  }

  asked(node) { return node ? this.thread.summary.questions.filter(q => q.node === node.seq && q.thread === this.thread.id) : []; }

  askedKey(node) { return this.asked(node).map(q => q.id + q.status).join(); }

  body(node) {
    const more = node.chars > node.text.length, said = (node.text || more) && el("div.say", node.text, more && "…");
    return [said, more && this.wholeButton(`nodes/${node.seq}/text`, node.chars, said),
      node.files.map(file => el("div.small.dim", "File: ", el("bdi", file.name || file.uri), ` · ${file.media_type}`)),
      node.calls.map(call => this.callRow(node, call)),
      this.asked(node).map(q => el("div.small.row.wrap", q.status === "open" ? [el("span.chip.waiting", "Waits for you"), button("Decide", toQuestion, ".link")] : [el("span.chip.succeeded", "Answered"), el("p", answerOf(q))])),
      node.siblings.length > 0 && el("div.small.row.wrap.dim", "Also continued as", node.siblings.map(seq => button("#" + seq, () => go({head: seq, step: null, msg: seq}), ".link.small")))];
  }

  // Texts beyond the first 2,000 characters come when they are asked for.
  wholeButton(rest, chars, box) {
    const all = button(`Show all ${int(chars)} characters`, async () => {
      try {
        fill(box, await getText(this.thread.path(rest)));
        all.remove();
      } catch (error) { fill(all, error.message); }
      this.draw();
    }, ".link.small");
    return all;
  }

  callRow(node, call) {
    const key = `${node.seq}/${call.index}`, box = el("div"), failed = hasFailed(call);
    const outcome = call.status !== "done" ? call.status : failed ? "✕ " + call.outcome
      : call.shown !== null && call.shown < call.chars ? `${short(call.shown)} of ${short(call.chars)} chars shown` : `${short(call.tokens)} tokens`;
    const show = () => {
      const up = opened.has(key);
      fill(box, button([el("b", (up ? "▾ " : "▸ ") + call.tool), el("span.a.clip", el("bdi", subjectOf(call))), el("span.o" + (failed ? ".error" : ""), outcome)], () => {
        turn(key);
        show();
        this.draw();
        box.firstChild.focus({preventScroll: true});
      }, ".call", {"aria-expanded": String(up)}), up && this.inside(node, call));
    };
    show();
    return box;
  }

  inside(node, call) {
    const argument = names => call.arguments.find(a => names.includes(a.name)), old = argument(["old", "old_text", "old_string"]), changed = argument(["new", "new_text", "new_string"]);
    const path = `nodes/${node.seq}/calls/${call.index}`, rest = call.arguments.filter(a => a !== old && a !== changed), result = block("Result", call.text);
    return [(call.runs || (call.run ? [call] : [])).map(one => this.childRun(one)),
      rest.length > 0 && block("Arguments", rest.map(a => `${a.name}: ${a.text}${a.more ? " …" : ""}\n`)),
      old && changed && block("Change", [el("del", old.text), el("ins", changed.text)], ".out.diff"),
      call.arguments.some(a => a.more) && el("a.small", {href: "api/inspector/" + this.thread.path(path, {part: "arguments"}), download: "arguments.json"}, "Download the arguments"),
      call.text && result, call.chars > call.text.length && this.wholeButton(path, call.chars, result)];
  }

  // A sub-agent's run, where it was called for: an interrupted call may have begun several.
  childRun(begun) {
    const run = this.thread.summary.tree.find(one => one.run === begun.run), link = el("a", {href: threadLink(begun.thread)}, "Open its thread");
    const box = el("div.sub", run ? [el("div.row.wrap", chip(run), el("span.num", `${run.agent} · ${int(run.steps)} steps · ${short(run.tokens)} tokens · ${usd(run.cost)}`), link), el("p.dim", run.detail)] : link);
    get(file ? pathOf(begun.thread, "nodes/0") : pathOf(begun.thread, "nodes", {from: 1, to: 200})).then(page => {
      box.append(...page.nodes.filter(one => one.role === "assistant").map(node => el("div.say", node.text, node.calls.map(one => el("div.mono.dim.clip", `${one.tool} ${subjectOf(one)}`)))));
      this.draw();
    }, () => {});
    return box;
  }

  activationLine(a) {
    const left = a.left - (this.thread.activationBefore(a)?.left || 0);
    return el("div.actline", "▼", button(`Activation ${a.id}: ${causeOf(a)}. ${int(left)} messages gave way to observations`, () => {
      const step = this.thread.steps.activation.indexOf(a.id);
      if (step >= 0) go({step: step + 1, tab: "left", msg: null, pane: inPane("prompt")});
    }));
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
    this.following = true;
    this.goal = null;
    this.seen = this.thread.count;
    for (let round = 0, was; round < 3 && was !== this.top[this.count]; round++) {
      this.box.scrollTop = was = this.top[this.count];
      this.draw();
    }
    this.tell();
  }

  stopFollowing() { this.following = false; this.tell(); }

  // Following ends with a scroll away from the end, and begins again there.
  scrolled() {
    const {box} = this, end = box.scrollHeight - box.scrollTop - box.clientHeight < 60, moved = Math.abs(box.scrollTop - this.set) > 1;
    if (moved) [this.following, this.goal] = [this.following && end, null];
    if (end) this.seen = this.thread.count;
    // What the page itself scrolled to is drawn.
    if (moved) this.draw();
    this.tell();
  }

  resized() {
    const width = this.box.clientWidth, drawn = !this.width && this.rows.size;
    if (this.width && width && width !== this.width && this.count) {
      const anchor = this.find(this.box.scrollTop), off = this.box.scrollTop - this.top[anchor];
      this.fit([]);
      this.box.scrollTop = this.top[anchor] + off;
    }
    this.width = width || this.width;
    if (this.count && !drawn) this.loaded();
  }

  tell() {
    const more = this.thread.count - this.seen;
    this.pill.hidden = this.following || more <= 0;
    this.pill.textContent = `${plural(more, "new step")} ↓`;
    this.followButton.hidden = !isMoving(this.thread.run);
    this.followButton.ariaPressed = String(this.following);
    this.followButton.textContent = this.following ? "Following" : "Follow";
  }

  move(by) {
    const i = this.thread.position(this.chosen) + by;
    if (i < 0 || i >= this.count) return;
    this.choose(this.thread.nodes.node[i]);
    this.rows.get(i)?.focus({preventScroll: true});
  }
}

export function toQuestion() {
  go({pane: inPane("side")});
  const card = byId("side").querySelector(".need");
  (card?.querySelector("button,input,textarea") || card)?.focus();
}
