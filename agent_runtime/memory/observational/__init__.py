"""Observational memory: dated notes replace old messages, so that the prompt stays small.

T is the threshold of raw messages in tokens, R that of observations, N the recent messages.  The
log keeps every message; memory only decides what prompts show.

How a message becomes an observation:

1. A message is appended to the log and is raw: prompts show it as it is.
2. After each step the loop wakes the run's background worker (`worker`).
3. From T/2 on `thresholds` gives the oldest raw nodes that may leave, in chunks.
4. The worker claims a durable job for the chunk, so that no other process pays for the same work,
   and reserves its budget (`jobs`).
5. The Observer writes notes: a model's (`observer.model`), which `observer.notes_format` parses and
   `observer.validate` accepts or rejects, or those of rules (`observer.rules`) if the model fails.
   The latter are provisional: the worker has a model rewrite them later.
6. `memory` commits the observation with its ledger and cost (`records`).  It is now prepared.
7. At T, or once it pays, `thresholds` asks for an activation.  The prepared observations are active:
   they replace their messages in prompts, byte for byte the same until the next activation.
8. Below R the worker has the Reflector condense the oldest observations into one; above R that
   takes effect.  `reflector.retention` puts lost critical lines back; `reflector.archive` replaces
   notes that cannot be condensed by a pointer to the log.

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
