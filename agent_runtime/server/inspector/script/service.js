// What the service answers: over HTTP, or from the blocks of an exported file.

const REFRESH = 60000;

export class Problem extends Error {
  constructor(status, detail, cure = "") {
    super(detail);
    this.status = status;
    this.cure = cure;
  }
  get told() { return `${this.message} ${this.cure}`.trim(); }
  // Asking again later may mend it.
  get passes() { return this.offline || this.status === 503 || this.status === 429; }
  get offline() { return this.status === 0 || this.status === 502 || this.status === 504; }
}

const exported = document.getElementById("export");
export const file = exported && JSON.parse(exported.textContent);

let asked = () => {};
// `callback` is called when the service wants to know who asks.
export function onUnknown(callback) { asked = callback; }

// What the page opens with was asked for before this script was there: by `ahead.js`.
function asking(path, options) {
  const {ahead} = window;
  window.ahead = null;
  return ahead?.path === path ? ahead.answer : fetch("api/" + path, options);
}

async function request(path, options) {
  const answer = await asking(path, options).catch(() => {
    throw new Problem(0, "The service cannot be reached.", "Check that it runs; the page tries again by itself.");
  });
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "session") asked();
  const told = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, told.detail || told.title || `The service answered ${answer.status}.`, told.cure);
}

async function unpacked(path) {
  const block = file.blocks[path];
  if (!block) throw new Problem(404, "The file does not hold this.", "Open the thread in the inspector.");
  const bytes = Uint8Array.from(atob(document.getElementById(block).textContent.trim()), char => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// `path` lies below the inspector's endpoints; in an exported file it names a block.
const ask = path => file ? unpacked(path) : request("inspector/" + path, {signal: AbortSignal.timeout(REFRESH)});
export const get = async path => (await ask(path)).json();
export const getText = async path => (await ask(path)).text();
export const getTables = async path => decode(await (await ask(path)).arrayBuffer());

export const search = async (text, thread) => (await request("search?" + new URLSearchParams({q: text, limit: 50, ...thread && {thread_id: thread}}))).json();

const posted = (path, body, headers) => request(path, {method: "POST", headers: {"Content-Type": "application/json", ...headers}, body: JSON.stringify(body)});

// The token becomes a cookie that scripts cannot read.
export const signIn = token => posted("session", {token});
export const signOut = () => request("session", {method: "DELETE"});

// What the service can start; nothing where it only shows and resumes.
let known;
export const agents = async () => known ??= (await (await request("agents")).json()).agents;

// A write that failed on its way may have been done: the same one again carries the same key.
const keys = new Map();
export async function post(path, body) {
  const intent = path + " " + JSON.stringify(body);
  if (!keys.has(intent)) keys.set(intent, Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, "0")).join(""));
  try {
    const answer = await posted(path, body, {"Idempotency-Key": keys.get(intent)});
    keys.delete(intent);
    return answer.json().catch(() => ({}));
  } catch (error) {
    if (!error.offline) keys.delete(intent);
    throw error;
  }
}

const ARRAYS = {i1: Int8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array};

// Tables of columns, each of differences to the value before.
function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true), start = 4 + size;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  for (const [name, {count, columns}] of Object.entries(header.tables)) {
    const table = header[name] = {count};
    for (const {type, offset, base, name} of columns) {
      const steps = new ARRAYS[type](buffer, start + offset, count), values = table[name] = new Float64Array(count);
      for (let i = 0, value = base; i < count; i++) values[i] = value += steps[i];
    }
  }
  return header;
}
