// A background task's approval by the AI SDK's transport and reader: shown, answered, settled.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const [url] = process.argv.slice(2);
const transport = new DefaultChatTransport({ api: `${url}/ai-sdk/boss` });
const chatId = "talk";
const user = { id: "u1", role: "user", parts: [{ type: "text", text: "background" }] };
const sent = { chatId, trigger: "submit-message", messageId: undefined };
const asking = (message) => message?.parts.find((part) => part.approval);

async function read(stream, message) {
  let last = message;
  for await (const one of readUIMessageStream({ stream, message, terminateOnError: true })) {
    last = one;
  }
  return last;
}

let message = await read(await transport.sendMessages({ ...sent, messages: [user] }));
const said = message.parts.filter((part) => part.type === "text").map((part) => part.text);
// It asks during the turn or after it; a page that is opened again asks for what it has missed.
while (!asking(message)) {
  await new Promise((done) => setTimeout(done, 50));
  const stream = await transport.reconnectToStream({ chatId });
  if (stream) message = await read(stream, message);
}
const asked = structuredClone(asking(message));
// As `addToolApprovalResponse` of `useChat` does.
const part = asking(message);
part.state = "approval-responded";
part.approval = { ...part.approval, approved: true };
const last = await transport.sendMessages({ ...sent, messages: [user, message] });
message = await read(last, message);

const settled = message.parts.find((one) => one.toolCallId === asked.toolCallId);
console.log(JSON.stringify({ said, asked, settled }));
process.exit(0);
