// The page as a whole: which view stands, what keeps it current, keys and themes.
import {onActed} from "./actions.js";
import {button, byId, clock, el, fill, notice, say, template, visible} from "./dom.js";
import {Found, Home} from "./home.js";
import {Watch} from "./live.js";
import {Log, toQuestion} from "./log.js";
import {chosenStep, go, goTo, inPane, onMove, opened, place, readPlace, threadLink} from "./place.js";
import {PromptPane} from "./prompt.js";
import {file, onUnknown, search, signIn, signOut} from "./service.js";
import {SidePane} from "./side.js";
import {Strip, markOf} from "./strip.js";
import {dark, kept, themeOf} from "./theme.js";
import {Thread} from "./thread.js";
import {chip, isActive, isMoving} from "./words.js";

let view = null, watch = null;

class ThreadView {
  constructor() {
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
    const first = !this.panes, waits = this.thread.summary.questions.filter(q => q.status === "open");
    if (first) this.build();
    else if (waits.some(q => !this.told.has(q.id))) say(`The run waits for you: ${waits.at(-1).text}`);
    this.told = new Set(waits.map(q => q.id));
    const {run} = this.thread;
    if (first && run?.status === "failed") notice(run.detail, "bad");
    this.late = first;
    this.renew(first);
    if (this.thread.fronted) return;
    // The strip and the log are painted first, and heed the pointer.
    for (let frames = 0; frames < 2; frames++) await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    this.late = false;
    if (view === this) this.show();
    await this.thread.readFront();
    if (view === this) this.renew();
  }

  renew(first) {
    this.strip.renew();
    this.log.renew();
    this.show(first);
  }

  build() {
    const t = this.thread;
    fill(byId("main"), template("thread-view"));
    this.panes = byId("panes");
    [this.strip, this.log, this.prompt, this.side] = [new Strip(t), new Log(t), new PromptPane(t, seq => this.log.toSeq(seq), seek), new SidePane(t)];
    this.buttons = [...byId("tabs").children];
    for (const one of this.buttons) one.onclick = () => go({pane: one.dataset.pane}, true);
    byId("error-before").onclick = () => this.jump(-1, marked("error"));
    byId("error-next").onclick = () => this.jump(1, marked("error"));
    new ResizeObserver(() => this.strip.frame()).observe(this.panes);
  }

  // Shows the place; `entered` is true where the address, not a click, led here.
  show(entered) {
    const t = this.thread;
    if (!this.panes) return;
    this.panes.dataset.pane = place.pane;
    for (const one of this.buttons) one.ariaPressed = String(place.pane === one.dataset.pane || one.dataset.pane === "prompt" && place.pane === "log" && innerWidth >= 768);
    fill(this.buttons.at(-1), this.told.size ? "Decide, plan, runs" : "Plan, runs");
    // A run that has not answered yet has no step to show.
    byId("strip").hidden = !t.count;
    if (t.count) this.showStep(entered);
    if (!this.late) this.side.draw();
    const {summary, run} = t, name = summary.title || summary.thread, running = isMoving(run);
    fill(byId("crumb"), !file && [el("a", {href: "#/", "aria-label": "Threads"}, el("span.hide", "Threads"), el("span.only", "‹")), el("span.dim", " / ")], el("bdi", name));
    fill(byId("status"), run && chip(run));
    document.title = `${running ? "▶ " : this.told.size ? "● " : ""}${visible(name)} – agent-runtime`;
    connection(file ? `As of ${new Date(file.at * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC` : running ? "Live" : "Up to date", running ? "running" : "succeeded");
  }

  showStep(entered) {
    const t = this.thread, target = place.msg ?? (place.step === null ? null : t.steps.node[chosenStep(t.count)]);
    if (place.obs !== null) for (const key of ["observed", "o" + place.obs]) opened.add(key);
    if (target !== this.target || entered) {
      if (target !== null) this.log.toSeq(target); else if (entered) this.log.toEnd();
    }
    this.target = target;
    this.strip.frame();
    this.log.draw();
    if (!this.late) this.prompt.draw();
  }

  arrived(error) {
    if (view !== this || !this.panes) return;
    if (error && !error.offline) notice(error.told, "bad");
    // What arrives within a frame is drawn once.
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      if (view !== this) return;
      this.log.loaded();
      this.prompt.draw();
    });
  }

  jump(by, wanted) {
    const {count} = this.thread;
    for (let i = chosenStep(count) + by; i >= 0 && i < count; i += by) if (wanted(i)) return go({step: i + 1, msg: null}, true);
    say("There is none");
  }
}

function connection(text = "Up to date", kind = "succeeded") {
  const box = byId("conn"), off = watch?.state === "offline";
  box.className = "chip hide " + (off ? "failed" : kind);
  fill(box, off ? "Offline" : text);
}

// One view at a time; moving inside a thread keeps it.
function show() {
  const key = [place.view, place.thread, place.head, place.q].join(), title = place.view === "search" ? "Search" : "Threads";
  if (view?.key === key) return view.show?.();
  watch?.stop();
  notice("");
  view = place.view === "thread" ? new ThreadView() : place.view === "search" ? new Found() : new Home();
  view.key = key;
  follow(view);
  fill(byId("main"), view.node || template("loading"));
  fill(byId("status"));
  if (place.view === "thread") return;
  fill(byId("crumb"), place.view === "search" && [el("a", {href: "#/"}, "Threads"), el("span.dim", " / ")], title);
  document.title = `${title} – agent-runtime`;
  connection();
}

function follow(mine) {
  watch = new Watch({refresh: () => mine.refresh(), stream: mine.stream, cursor: () => mine.thread.summary.cursor, changed: (error, cause) => view === mine && changed(error, cause)});
}

function changed(error, cause) {
  if (error) return error.status === 401 ? connection("Signed out", "failed") : fail(error);
  const off = watch.state === "offline";
  view.side?.enable(!off);
  connection();
  if (off) return notice(`${cause.message} No connection since ${clock(watch.since)}. Trying again in ${Math.ceil((watch.next - Date.now()) / 1000)} s; the run itself is not affected.`, "warn");
  notice("");
  view.show?.();
}

function fail(error) {
  const gone = error.status === 404, again = () => { view = null; show(); };
  fill(byId("main"), el("div.blank", {role: "alert"}, el("h2", gone ? "There is no such thread" : "This cannot be read"), el("p.dim", gone ? "It is gone, or belongs to someone else." : error.told),
    el("div.row", button("Try again", again), el("a", {href: "#/"}, "All threads"))));
  connection("Error", "failed");
}

async function seek(text) {
  if (file) return say("Files cannot be searched");
  if (place.view !== "thread") return goTo("#/search?q=" + encodeURIComponent(text));
  try {
    const {hits} = await search(text, place.thread), hit = hits.find(one => one.node_id < view.log.chosen) || hits[0];
    if (!hit) return notice(`No message of this thread has “${text}”.`);
    go({msg: hit.node_id});
    say(`Found in message ${hit.node_id}`);
  } catch (error) { notice(error.message, "bad"); }
}

// The selected step, from 0, and what the keys do from there.
const chosen = () => chosenStep(view.thread.count);
const choose = by => () => view.strip.choose(chosen() + by);
const move = by => () => view.log.move(by);
const marked = name => i => markOf(view.thread, i) === name;
const jump = (by, wanted) => () => view.jump(by, wanted);
const changes = i => view.thread.changed(i);
const tab = tab => () => go({tab, with: tab === "compare" ? Math.max(1, chosen()) : null, pane: inPane("prompt")});
const zoom = by => () => view.strip.zoom(by);

function where() {
  const t = view.thread, own = t.steps.node[chosen()], before = t.nodes.node[Math.max(0, t.position(own) - 1)];
  go({msg: place.msg === null || place.msg === own ? before : place.msg, step: chosen() + 1, tab: "prompt", pane: inPane("prompt")});
  byId("pscroll").scrollTop = 0;
}

// What each key does; the page's list of them says it in words.
const ANYWHERE = {g: () => goTo("#/"), "/": () => byId("find").focus(), "?": () => byId("help").showModal()};
const KEYS = {
  j: move(1), k: move(-1), ArrowRight: choose(1), ArrowLeft: choose(-1), "]": jump(1, changes), "[": jump(-1, changes), e: jump(1, marked("error")), E: jump(-1, marked("error")),
  w: where, d: tab("compare"), l: tab("left"), p: tab("prompt"), "+": zoom(0.5), "-": zoom(2), 0: () => go({z: null}), f: () => { go({step: null, msg: null}); view.log.toEnd(); },
  q: toQuestion, s: () => { go({pane: inPane("side")}); byId("steer")?.focus(); }, ...ANYWHERE,
};

function pressed(event) {
  const {key, target} = event;
  if (key === "Escape") {
    // What asks for more is closed, and the focus stays in its pane.
    const box = target.closest("#extra,.more"), pane = target.closest(".scroll");
    if (box) box.querySelector(".plain").click();
    if (box || target.closest("input,textarea")) pane ? pane.focus() : target.blur();
  }
  if (!Object.hasOwn(KEYS, key) || event.ctrlKey || event.metaKey || event.altKey || target.closest("input,textarea,select,dialog[open]")) return;
  if (kept.get("keys") === "off" && key !== "?" || !view?.thread?.steps?.count && !Object.hasOwn(ANYWHERE, key)) return;
  event.preventDefault();
  KEYS[key]();
}

function paint() {
  const theme = themeOf();
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  view?.strip?.renew();
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
  const token = byId("token"), {submitter} = event;
  submitter.disabled = true;
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
  submitter.disabled = false;
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
  paint();
  dark.onchange = paint;
  byId("theme").onclick = () => { kept.set("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark"); paint(); };
  byId("keys").onclick = KEYS["?"];
  byId("use-keys").checked = kept.get("keys") !== "off";
  byId("use-keys").onchange = event => kept.set("keys", event.target.checked ? "on" : "off");
  byId("find").hidden = Boolean(file);
  byId("find").onkeydown = event => { if (event.key === "Enter" && event.target.value.trim()) seek(event.target.value.trim()); };
  byId("skip").onclick = event => { event.preventDefault(); byId("main").focus(); };
  byId("signin").oncancel = event => event.preventDefault();
  byId("enter").onsubmit = enter;
  byId("leave").hidden = Boolean(file) || !kept.get("signed");
  byId("leave").onclick = leave;
  document.onkeydown = pressed;
  onpopstate = () => { readPlace(); show(); };
  onMove(show);
  onUnknown(askWho);
  onActed(() => watch.signal());
  readPlace();
  if (file && place.view !== "thread") goTo(threadLink(file.thread)); else show();
}

begin();
