// Where the page is. All of it is in the address, so that links and the back button work.

const NUMBERS = ["head", "step", "msg", "obs", "with"];
const NONE = {view: "home", thread: null, head: null, step: null, msg: null, obs: null, tab: "prompt", with: null, z: null, pane: "log", q: null};
const CHOICES = {tab: ["prompt", "left", "compare"], pane: ["log", "prompt", "side"]};

export const place = {...NONE};
// Sections and rows that are open, by key: they stay open while the selection moves.
export const opened = new Set(["observed", "raw", "constraints"]);
export function turn(key) { if (!opened.delete(key)) opened.add(key); }

let show = () => {};
export function onMove(callback) { show = callback; }

export function readPlace() {
  const [path, query] = location.hash.slice(1).split("?"), q = new URLSearchParams(query);
  Object.assign(place, NONE, {q: q.get("q")});
  const [, room, id] = path.split("/");
  if (room === "search") place.view = room;
  if (room === "threads" && id) {
    try { Object.assign(place, {thread: decodeURIComponent(id), view: "thread"}); } catch { /* not an address of ours */ }
  }
  for (const key of NUMBERS) if (/^\d{1,15}$/.test(q.get(key))) place[key] = +q.get(key);
  for (const [key, known] of Object.entries(CHOICES)) if (known.includes(q.get(key))) place[key] = q.get(key);
  const zoom = /^(\d{1,9})-(\d{1,9})$/.exec(q.get("z"));
  if (zoom && +zoom[1] >= 1 && +zoom[2] > +zoom[1]) place.z = [+zoom[1], +zoom[2]];
}

export function address(at) {
  const q = new URLSearchParams();
  for (const key of [...NUMBERS, "q", "tab", "pane"]) if (at[key] !== NONE[key]) q.set(key, at[key]);
  if (at.z) q.set("z", at.z.join("-"));
  const path = at.view === "thread" ? "threads/" + encodeURIComponent(at.thread) : at.view === "search" ? "search" : "";
  return "#/" + path + (q.size ? "?" + q : "");
}

export const threadLink = (thread, more) => address({...NONE, view: "thread", thread, ...more});

// Moves the page. `replace` keeps the back button from going through every step of a walk.
export function go(patch, replace) {
  Object.assign(place, patch);
  history[replace ? "replaceState" : "pushState"](null, "", address(place));
  show();
}

export function goTo(link) { history.pushState(null, "", link); readPlace(); show(); }

// Below 1280 pixels not all panes are in view: an action brings its own to the front.
export const inPane = pane => innerWidth < (pane === "side" ? 1280 : 768) ? pane : innerWidth < 1280 && place.pane === "side" ? "log" : place.pane;

// The selected step, from 0: the newest one unless the address names another.
export const chosenStep = count => place.step === null ? count - 1 : Math.max(0, Math.min(count, place.step) - 1);
