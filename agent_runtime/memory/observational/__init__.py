"""Observational memory: dated notes replace old messages, so that the prompt stays small.

T is the threshold of raw messages in tokens, R that of observations, N the recent messages.  The
log keeps every message; memory only decides what prompts show.

How a message becomes an observation:

1. A message is appended to the log and is raw: prompts show it as it is.
2. After each step the loop wakes the run's background worker (`worker`).
3. From T/2 on `thresholds` gives the oldest raw nodes that may leave, in chunks.
4. The worker claims a durable job for the chunk, so that no other process pays for the same work,
   and reserves its budget (`jobs`).
5. The Observer writes notes.  A model reads a transcript (`observer.model`, `memory.transcript`),
   and its notes are parsed (`observer.notes_format`) and validated (`observer.validate`).  If it
   fails, rules write them (`observer.rules`); a model rewrites these provisional notes later.
6. `memory` commits the observation with its ledger and cost (`records`, `memory.accounting`).  It
   is now prepared.
7. At T, or once it pays, `thresholds` asks for an activation.  The observation is then active: it
   replaces its messages in prompts and stays the same byte for byte.
8. From 0.7 R on the worker has the Reflector condense the oldest observations into one, which takes
   effect above R.  `reflector.retention` puts lost critical lines back; `reflector.archive` puts a
   pointer to the log in place of notes that cannot be condensed.

Where each decision is made:

- `thresholds`: when to observe, when to activate, when to truncate old tool results meanwhile.
- `observer`: what a chunk's notes say.  `reflector`: which observations to condense, and to what.
- `memory`: which observations are prepared and active, and with which the next activation begins.
- `worker`: what to do next in the background, and what to do after a failure.
- `gaps`: what left the prompt while observational memory was off, and is observed later.
- `constraint_reader`: what the user requires; prompts show it whatever is observed.
- `configure`: which models and thresholds the settings give a run.
- `report`: what a thread's memory holds, for people.
"""
