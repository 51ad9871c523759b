// Keeps what is shown current, and says when it cannot.
import {file} from "./service.js";

const STREAMS = 4, PACE = 2000, IDLE = 15000, LONGEST = 15000, SOON = 100, LEAST = 1000;

const pause = ms => new Promise(done => setTimeout(done, ms));

// Browsers allow six connections to a service over all tabs: at most four tabs hold a stream, the others ask.
// The slot is free again when the returned function is called, or when the tab is closed.
async function slot() {
  if (!navigator.locks) return () => {};
  for (let k = 0; k < STREAMS; k++) {
    const free = await new Promise(answer => navigator.locks.request("agent-runtime:stream:" + k, {ifAvailable: true},
      lock => lock ? new Promise(answer) : answer()).catch(() => answer()));
    if (free) return free;
  }
}

export class Watch {
  // `refresh` reads what is new; `stream` names the events to wait for, if there are any, and `cursor`
  // where they begin;
  // `changed` is called with an error that asking again does not mend, and when the connection changes.
  constructor(options) {
    Object.assign(this, options, {state: "live", path: null});
    this.signal = () => { this.pending = true; this.wake?.(); };
    document.addEventListener("visibilitychange", this.signal);
    this.run();
  }

  stop() {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this.signal);
    this.signal();
    this.detach();
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
        await this.rest(wait);
        continue;
      }
      if (file) return;
      this.attach();
      const quiet = this.streaming || document.hidden || this.stream && !this.stream();
      if (!this.pending) await this.rest(quiet ? IDLE : PACE);
      // A quick run must not use up what the service allows: once a second at most.
      await pause(Math.max(SOON, began + LEAST - Date.now()));
    }
  }

  // Until the time is over, or something happened.
  rest(ms) { return Promise.race([pause(ms), new Promise(done => { this.wake = done; })]); }

  tell(state, error) {
    if (state !== this.state) this.since = Date.now() / 1000;
    this.state = state;
    if (!this.stopped) this.changed(null, error);
  }

  // Every event is a signal to ask again: what is shown never depends on having seen each of them.
  async attach() {
    const path = !document.hidden && this.stream?.() || null;
    if (path === this.path) return;
    this.detach();
    this.path = path;
    const free = path && await slot();
    // What is followed may have changed meanwhile; without a slot, the next refresh tries again.
    if (path !== this.path) return free?.();
    if (!free) return this.detach();
    const source = new EventSource(`${path}?cursor=${encodeURIComponent(this.cursor())}`);
    Object.assign(this, {source, free});
    source.onopen = () => { this.streaming = true; };
    source.onmessage = this.signal;
    // The next refresh finds out whether the service is there. Mostly the browser connects again by itself.
    source.onerror = async () => {
      this.streaming = false;
      this.signal();
      if (source.readyState !== EventSource.CLOSED) return;
      await pause(PACE);
      if (source !== this.source) return;
      this.detach();
      this.signal();
    };
  }

  detach() {
    this.source?.close();
    this.free?.();
    this.path = this.source = this.free = this.streaming = null;
  }
}
