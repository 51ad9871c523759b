// Keeps what is shown current, and says when it cannot.
import {file} from "./service.js";

const STREAMS = 4, PACE = 2000, IDLE = 15000, LONGEST = 15000, SOON = 100, LEAST = 1000;

// Browsers allow six connections to a service over all tabs: at most four tabs hold a stream, the others ask.
// The slot is free again when the returned function is called, or when the tab is closed.
async function slot() {
  if (!navigator.locks) return () => {};
  for (let k = 0; k < STREAMS; k++) {
    const free = await new Promise(answer => {
      navigator.locks.request("agent-runtime:stream:" + k, {ifAvailable: true},
        lock => lock ? new Promise(release => answer(release)) : answer(null)).catch(() => answer(null));
    });
    if (free) return free;
  }
  return null;
}

export class Watch {
  // `refresh` reads what is new; `stream` names the events to wait for, if there are any, and `cursor`
  // where they begin;
  // `changed` is called with an error that asking again does not mend, and when the connection changes.
  constructor({refresh, stream, cursor, changed}) {
    Object.assign(this, {refresh, stream, cursor, changed, state: "live", since: null, next: null});
    this.visible = () => this.signal();
    document.addEventListener("visibilitychange", this.visible);
    this.run();
  }

  stop() {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this.visible);
    this.signal();
    if (this.abort) this.abort.abort();
  }

  signal() {
    this.pending = true;
    if (this.wake) this.wake();
  }

  pause(ms) {
    return new Promise(done => {
      const timer = setTimeout(done, ms);
      this.wake = () => { clearTimeout(timer); done(); };
    });
  }

  async run() {
    for (let failures = 0; !this.stopped;) {
      this.pending = false;
      const began = Date.now();
      try {
        await this.refresh();
        if (failures) this.tell("live");
        failures = 0;
      } catch (error) {
        if (this.stopped) return;
        if (!error.passes) return this.changed(error);
        const wait = Math.min(LONGEST, 1000 * 2 ** failures++);
        this.next = Date.now() + wait;
        this.tell("offline", error);
        await this.pause(wait);
        continue;
      }
      if (file) return;
      this.attach();
      const quiet = this.streaming || document.hidden || this.stream && !this.stream();
      if (!this.pending) await this.pause(quiet ? IDLE : PACE);
      // A quick run must not use up what the service allows: once a second at most.
      await new Promise(done => setTimeout(done, Math.max(SOON, began + LEAST - Date.now())));
    }
  }

  tell(state, error) {
    if (state !== this.state) this.since = Date.now() / 1000;
    this.state = state;
    if (!this.stopped) this.changed(null, error);
  }

  // Every event is a signal to ask again: what is shown never depends on having seen each of them.
  async attach() {
    const path = !document.hidden && this.stream && this.stream();
    if (path === this.path || this.attaching) return;
    if (this.abort) this.abort.abort();
    if (!path) return;
    this.attaching = true;
    const free = await slot();
    this.attaching = false;
    if (!free) return;
    this.path = path;
    const abort = this.abort = new AbortController();
    try {
      const answer = await fetch(path, {headers: {Accept: "text/event-stream", "Last-Event-ID": this.cursor()}, signal: abort.signal, cache: "no-store"});
      if (!answer.ok) throw answer;
      this.streaming = true;
      const reader = answer.body.getReader(), decoder = new TextDecoder();
      for (let part = await reader.read(); !part.done && !this.stopped; part = await reader.read()) {
        if (/^data/m.test(decoder.decode(part.value, {stream: true}))) this.signal();
      }
    } catch { /* The next refresh finds out whether the service is there. */ } finally {
      free();
      // Another stream may have taken its place.
      if (this.abort === abort) {
        this.streaming = false;
        setTimeout(() => { if (this.abort === abort) { this.path = null; this.signal(); } }, PACE);
      }
    }
  }
}
