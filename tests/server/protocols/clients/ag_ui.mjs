// A whole run by AG-UI's client: a tool, a reconnect in the middle, an approval.
import { HttpAgent } from "@ag-ui/client";

const [url] = process.argv.slice(2);
const kinds = [];
const note = ({ event }) => { kinds.push(event.type); };
const agent = new HttpAgent({ url: `${url}/ag-ui/desk`, threadId: "talk-ag-ui" });
agent.addMessage({ id: "u1", role: "user", content: "Go" });

// The connection breaks while the tool `hold` waits.
let broken = false;
await agent
  .runAgent({ runId: "first" }, {
    onEvent: note,
    onToolCallStartEvent: ({ event }) => {
      if (event.toolCallName === "hold") { broken = true; agent.abortRun(); }
    },
  })
  .catch(() => {});

// The same request again gives the run from its start.
const again = new HttpAgent({ url: `${url}/ag-ui/desk`, threadId: "talk-ag-ui" });
again.addMessage({ id: "u1", role: "user", content: "Go" });
let interrupts = [];
await again.runAgent({ runId: "first" }, {
  onEvent: note,
  onToolCallStartEvent: ({ event }) => {
    if (event.toolCallName === "hold") fetch(`${url}/gate`, { method: "POST" });
  },
  onRunFinishedEvent: ({ event }) => { interrupts = event.outcome?.interrupts ?? []; },
});
const results = [];
const collected = {
  onEvent: note,
  onRunFinishedEvent: ({ event }) => { results.push(event); },
};
const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: { approved: true } }];
await again.runAgent({ runId: "second", resume }, collected);

console.log(JSON.stringify({
  broken, kinds, interrupts, messages: again.messages, finished: results.at(-1),
}));
process.exit(0);
