// The page as a whole: which view stands, what keeps it current, keys and themes.
import {onActed} from "./actions.js";
import {byId, clock, el, fill, kept, notice, say, visible} from "./dom.js";
import {Found, Home} from "./home.js";
import {Watch} from "./live.js";
import {Log, toQuestion} from "./log.js";
import {chosenStep, go, goTo, inPane, onMove, opened, place, readPlace, threadLink} from "./place.js";
import {PromptPane} from "./prompt.js";
import {file, onUnknown, search, signIn, signOut} from "./service.js";
import {SidePane} from "./side.js";
import {Strip, markOf} from "./strip.js";
import {Thread} from "./thread.js";
import {chip, isActive} from "./words.js";

const PANES_OF = {log: "Log", prompt: "What it saw", side: "Plan, runs"};
let view = null, watch = null;

class ThreadView {
  constructor() {
    this.key = [place.thread, place.head].join();
    this.thread = new Thread(place.thread, place.head, error => this.arrived(error));
    this.stream = () => this.eventsOf(this.thread);
  }

  // Of a run at work with those below it; of the thread while its run waits, since that has no end.
  eventsOf({id, run}) {
    if (!run || !isActive(run)) return null;
    return run.status === "suspended" ? `api/threads/${encodeURIComponent(id)}/events` : `api/runs/${encodeURIComponent(run.run)}/events`;
  }

  async refresh() {
    await this.thread.refresh();
    if (view !== this) return;
    const first = !this.node, t = this.thread, waits = t.summary.questions.filter(q => q.status === "open");
    if (first) this.build();
    if (waits.some(q => !this.told?.has(q.id)) && !first) say(`The run waits for you: ${waits.at(-1).text}`);
    this.told = new Set(waits.map(q => q.id));
    this.strip.renew();
    this.log.renew();
    this.show(first);
  }

  build() {
    const t = this.thread, toSeq = seq => this.log.toSeq(seq);
    [this.strip, this.log, this.prompt, this.side] = [new Strip(t), new Log(t, by => this.jump(by, marked("error"))), new PromptPane(t, toSeq, seek), new SidePane(t)];
    this.panes = el("div", {id: "panes"}, this.log.node, this.prompt.node, this.side.node);
    this.buttons = Object.fromEntries(Object.entries(PANES_OF).map(([pane, name]) => [pane, el("button", {onclick: () => go({pane}, true)}, name)]));
    this.node = el("div.view", this.strip.node, el("div.seg.main", {id: "tabs", role: "group", "aria-label": "Panes"}, Object.values(this.buttons)), this.panes);
    fill(byId("main"), this.node);
    new ResizeObserver(() => this.strip.frame()).observe(this.panes);
  }

  // Shows the place; `entered` is true where the address, not a click, led here.
  show(entered) {
    const t = this.thread;
    if (!t.count) return this.showEmpty();
    this.panes.dataset.pane = place.pane;
    for (const [pane, button] of Object.entries(this.buttons)) button.setAttribute("aria-pressed", String(place.pane === pane || pane === "prompt" && place.pane === "log" && innerWidth >= 768));
    fill(this.buttons.side, this.told.size ? "Decide, plan, runs" : PANES_OF.side);
    if (place.obs !== null) for (const key of ["observed", "o" + place.obs]) opened.add(key);
    const target = place.msg ?? (place.step === null ? null : t.steps.node[chosenStep(t.count)]);
    if (target !== this.target || entered) {
      if (target !== null) this.log.toSeq(target); else if (entered) this.log.toEnd();
    }
    this.target = target;
    this.strip.frame();
    this.log.draw();
    this.prompt.draw();
    this.side.draw();
    this.chrome();
  }

  // A run that has not answered yet: there is no step to show.
  showEmpty() {
    this.strip.node.hidden = true;
    this.side.draw();
    this.chrome();
  }

  arrived(error) {
    if (view !== this || !this.node) return;
    if (error && !error.offline) notice(error.told, "bad");
    this.log.loaded();
    this.prompt.draw();
  }

  chrome() {
    const {summary, run} = this.thread, running = run && ["queued", "running"].includes(run.status);
    fill(byId("crumb"), file ? null : [el("a", {href: "#/", "aria-label": "Threads"}, el("span.hide", "Threads"), el("span.only", "‹")), el("span.dim", " / ")], el("bdi", summary.title || summary.thread));
    fill(byId("status"), run && chip(run));
    document.title = `${running ? "▶ " : this.told.size ? "● " : ""}${visible(summary.title || summary.thread)} – agent-runtime`;
    connection(file ? `As of ${new Date(file.at * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC` : running ? "Live" : "Up to date", running ? "running" : "succeeded");
  }

  jump(by, wanted) {
    const {count} = this.thread;
    for (let i = chosenStep(count) + by; i >= 0 && i < count; i += by) if (wanted(i)) return go({step: i + 1, msg: null}, true);
    say("There is none further on");
  }
}

function connection(text, kind) {
  const box = byId("conn");
  if (watch && watch.state === "offline") [text, kind] = ["Offline", "failed"];
  box.className = "chip hide " + kind;
  fill(box, text);
}

// One view at a time; moving inside a thread keeps it.
function show() {
  const key = place.view === "thread" || file ? [place.thread, place.head].join() : place.view === "search" ? "search " + place.q : "home";
  if (view && view.key === key) return view.node && view.show && view.show();
  if (watch) watch.stop();
  notice("");
  view = place.view === "thread" ? new ThreadView() : place.view === "search" ? new Found() : new Home();
  view.key = key;
  follow(view);
  fill(byId("main"), view.node || el("div", {"aria-busy": "true", "aria-label": "Loading"}, [90, 70, 40, 80, 60, 75, 50].map(width => el("div.sk", {css: {width: width + "%"}}))));
  fill(byId("status"));
  if (place.view === "thread") return;
  const title = place.view === "search" ? "Search" : "Threads";
  fill(byId("crumb"), place.view === "search" ? [el("a", {href: "#/"}, "Threads"), el("span.dim", " / "), title] : title);
  document.title = `${title} – agent-runtime`;
  connection("Up to date", "succeeded");
}

function follow(mine) {
  watch = new Watch({refresh: () => mine.refresh(), stream: mine.stream, cursor: () => mine.thread.summary.cursor, changed: (error, cause) => view === mine && changed(error, cause)});
}

function changed(error, cause) {
  if (error) return error.status === 401 ? connection("Signed out", "failed") : fail(error);
  const off = watch.state === "offline", side = view.side;
  if (side) side.enable(!off);
  if (!off) {
    notice("");
    return view.node && view.show ? view.show() : connection("Up to date", "succeeded");
  }
  connection("Offline", "failed");
  const wait = Math.ceil((watch.next - Date.now()) / 1000);
  notice(`${cause.message} No connection since ${clock(watch.since)}. What you see is what was there then; trying again in ${wait} s. The run itself is not affected.`, "warn");
}

function fail(error) {
  const gone = error.status === 404, again = () => { view = null; show(); };
  const sentence = gone ? "It does not exist, or belongs to someone else." : error.told;
  fill(byId("main"), el("div.blank", {role: "alert"}, el("h2", gone ? "There is no such thread" : "This cannot be read"), el("p.dim", {dir: "auto"}, sentence),
    el("div.row", el("button", {onclick: again}, "Try again"), el("a", {href: "#/"}, "All threads"))));
  connection("Error", "failed");
}

async function seek(text) {
  if (file) return say("An exported file cannot be searched");
  const inside = place.view === "thread" ? place.thread : null;
  if (!inside) return goTo(`#/search?q=${encodeURIComponent(text)}`);
  try {
    const {hits} = await search(text, inside), hit = hits.find(one => one.node_id < view.log.chosen) || hits[0];
    if (!hit) return notice(`No message of this thread has “${text}”.`);
    go({msg: hit.node_id});
    say(`Found in message ${hit.node_id}`);
  } catch (error) { notice(error.message, "bad"); }
}

const strip = () => view.strip;
function whereKey() {
  const t = view.thread, own = t.steps.node[chosenStep(t.count)];
  const before = t.nodes.node[Math.max(0, t.position(own) - 1)];
  go({msg: place.msg === null || place.msg === own ? before : place.msg, step: chosenStep(t.count) + 1, tab: "prompt", pane: inPane("prompt")});
  view.prompt.box.scrollTop = 0;
}
const marked = name => i => markOf(view.thread, i) === name;
const newActivation = i => view.thread.changed(i);
const tab = name => () => go({tab: name, with: name === "compare" ? Math.max(1, chosenStep(view.thread.count)) : null, pane: inPane("prompt")});

const KEYS = {
  j: ["Next message", () => view.log.move(1)], k: ["Message before", () => view.log.move(-1)],
  ArrowRight: ["Next step", () => strip().choose(chosenStep(view.thread.count) + 1)], ArrowLeft: ["Step before", () => strip().choose(chosenStep(view.thread.count) - 1)],
  "]": ["Next activation", () => view.jump(1, newActivation)], "[": ["Activation before", () => view.jump(-1, newActivation)],
  e: ["Next error", () => view.jump(1, marked("error"))], E: ["Error before", () => view.jump(-1, marked("error"))],
  w: ["Where this message is", whereKey], d: ["Compare with the step before", tab("compare")], l: ["What was left out", tab("left")], p: ["The prompt", tab("prompt")],
  "+": ["Zoom in", () => strip().zoom(0.5)], "-": ["Zoom out", () => strip().zoom(2)], 0: ["All steps", () => go({z: null})],
  f: ["Follow the run", () => { go({step: null, msg: null}); view.log.toEnd(); }], q: ["The open question", toQuestion],
  s: ["Steer", () => { go({pane: inPane("side")}); byId("steer")?.focus(); }],
  g: ["Home", () => goTo("#/")], "/": ["Search", () => byId("find").focus()], "?": ["This list", () => byId("help").showModal()],
};

function key(event) {
  if (event.key === "Escape" && event.target.closest("input,textarea")) event.target.blur();
  const found = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!found || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog[open]")) return;
  if (kept.get("keys") === "off" && event.key !== "?") return;
  if (!(view && view.panes && view.thread.count) && !"/?g".includes(event.key)) return;
  event.preventDefault();
  found[1]();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  if (view && view.strip) view.strip.renew();
}

// Over the page, which keeps its place and what was typed; what it shows was read before.
function askWho() {
  const box = byId("signin");
  if (box.open) return;
  fill(byId("wrong"));
  box.showModal();
}

async function enter(event) {
  event.preventDefault();
  const token = byId("token"), button = byId("enter").querySelector("button");
  button.disabled = true;
  try {
    await signIn(token.value.trim());
    token.value = "";
    kept.set("signed", "in");
    byId("leave").hidden = false;
    byId("signin").close();
    notice("");
    view.thread?.retry();
    watch.stop();
    follow(view);
  } catch (error) { fill(byId("wrong"), error.told); }
  button.disabled = false;
}

// The page is loaded again: nothing of the user stays in it.
async function leave() {
  try {
    await signOut();
    kept.set("signed", "");
    location.reload();
  } catch (error) { notice(error.told, "bad"); }
}

function begin() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), own = () => kept.get("theme") || (dark.matches ? "dark" : "light");
  theme(own());
  dark.addEventListener("change", () => theme(own()));
  byId("theme").addEventListener("click", () => {
    kept.set("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    theme(kept.get("theme"));
  });
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("close").addEventListener("click", () => byId("help").close());
  byId("use-keys").checked = kept.get("keys") !== "off";
  byId("use-keys").addEventListener("change", event => kept.set("keys", event.target.checked ? "on" : "off"));
  byId("find").hidden = Boolean(file);
  byId("find").addEventListener("keydown", event => { if (event.key === "Enter" && event.target.value.trim()) seek(event.target.value.trim()); });
  byId("skip").addEventListener("click", event => { event.preventDefault(); byId("main").focus(); });
  fill(byId("keylist"), Object.entries(KEYS).map(([name, [does]]) => [el("dt", el("kbd", {ArrowRight: "→", ArrowLeft: "←"}[name] || name)), el("dd", does)]));
  document.addEventListener("keydown", key);
  addEventListener("popstate", () => { readPlace(); show(); });
  onMove(show);
  onUnknown(askWho);
  byId("signin").addEventListener("cancel", event => event.preventDefault());
  byId("enter").addEventListener("submit", enter);
  byId("leave").hidden = Boolean(file) || !kept.get("signed");
  byId("leave").addEventListener("click", leave);
  onActed(() => watch.signal());
  readPlace();
  if (file && place.view !== "thread") location.replace(threadLink(file.thread));
  readPlace();
  show();
}

begin();
