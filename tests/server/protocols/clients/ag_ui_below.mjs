// A background task's approval by AG-UI's client, while the agent that delegated it works.
import { HttpAgent } from "@ag-ui/client";

const [url] = process.argv.slice(2);
const agent = new HttpAgent({ url: `${url}/ag-ui/boss`, threadId: "talk" });
agent.addMessage({ id: "u1", role: "user", content: "background, hold" });
const other = new HttpAgent({ url: `${url}/ag-ui/boss`, threadId: "talk" });
let asked;
let answered;
const finished = [];
const noted = { onRunFinishedEvent: ({ event }) => { finished.push(event.outcome?.type); } };

await agent.runAgent({ runId: "first" }, {
  ...noted,
  onCustomEvent: ({ event }) => {
    if (event.name !== "question" || answered) return;
    asked = event.value;
    const resume = [{ interruptId: asked.id, status: "resolved", payload: { approved: true } }];
    answered = other.runAgent({ runId: "second", resume }, {
      ...noted, onRunStartedEvent: () => { fetch(`${url}/gate`, { method: "POST" }); },
    }).catch((error) => String(error));
    // The answer's run begins no run of its own here: the gate opens in any case.
    setTimeout(() => fetch(`${url}/gate`, { method: "POST" }), 500);
  },
});
const error = await answered;

console.log(JSON.stringify({ asked, finished, error: typeof error === "string" ? error : "" }));
process.exit(0);
