// What the service answers: over HTTP, or from the blocks of an exported file.

const REFRESH = 60000;

export class Problem extends Error {
  constructor(status, detail, cure = "") {
    super(detail);
    this.status = status;
    this.cure = cure;
  }
  get told() { return [this.message, this.cure].filter(Boolean).join(" "); }
  // Asking again later may mend it.
  get passes() { return this.offline || this.status === 503 || this.status === 429; }
  get offline() { return this.status === 0 || this.status === 502 || this.status === 504; }
}

const exported = document.getElementById("export");
export const file = exported && JSON.parse(exported.textContent);

let asked = () => {};
// `callback` is called when the service wants to know who asks.
export function onUnknown(callback) { asked = callback; }

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, {credentials: "same-origin", ...options});
  } catch {
    throw new Problem(0, "The service cannot be reached.", "Check that it runs; the page tries again by itself.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "api/session") asked();
  const told = await answer.json().catch(() => ({}));
  const detail = told.detail || told.title || `The service answered ${answer.status}.`;
  throw new Problem(answer.status, detail, told.cure);
}

async function unpacked(path) {
  const block = file.blocks[path];
  if (!block) throw new Problem(404, "The file does not hold this.", "Open the thread in the inspector.");
  const packed = atob(document.getElementById(block).textContent.trim());
  const bytes = Uint8Array.from(packed, char => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// `path` lies below the inspector's endpoints; in an exported file it names a block.
export async function get(path, binary) {
  const answer = file ? await unpacked(path)
    : await request("api/inspector/" + path, {signal: AbortSignal.timeout(REFRESH)});
  return binary ? answer.arrayBuffer() : answer.json();
}

export async function getText(path) { return (await request("api/inspector/" + path)).text(); }

export async function search(text, thread) {
  const q = new URLSearchParams({q: text, limit: 50, ...thread && {thread_id: thread}});
  return (await request("api/search?" + q)).json();
}

// The token becomes a cookie that scripts cannot read.
export function signIn(token) {
  return request("api/session", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token})});
}
export function signOut() { return request("api/session", {method: "DELETE"}); }

// What the service can start; nothing where it only shows and resumes.
let known = null;
export async function agents() {
  known ??= (await (await request("api/agents")).json()).agents;
  return known;
}

// A write that failed on its way may have been done: the same one again carries the same key.
const keys = new Map();
export async function post(path, body) {
  const text = JSON.stringify(body), intent = path + " " + text;
  if (!keys.has(intent)) {
    keys.set(intent, Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, "0")).join(""));
  }
  const headers = {"Content-Type": "application/json", "Idempotency-Key": keys.get(intent)};
  let answer;
  try {
    answer = await request("api/" + path, {method: "POST", headers, body: text});
  } catch (error) {
    if (!error.offline) keys.delete(intent);
    throw error;
  }
  keys.delete(intent);
  return answer.status === 204 ? {} : answer.json().catch(() => ({}));
}

const ARRAYS = {i1: Int8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array};

// Tables of columns, each of differences to the value before.
export function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true), start = 4 + size;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const tables = {};
  for (const [name, {count, columns}] of Object.entries(header.tables)) {
    const table = tables[name] = {count};
    for (const column of columns) {
      const steps = new ARRAYS[column.type](buffer, start + column.offset, count);
      const values = table[column.name] = new Float64Array(count);
      for (let i = 0, value = column.base; i < count; i++) values[i] = value += steps[i];
    }
  }
  return {...header, ...tables};
}
